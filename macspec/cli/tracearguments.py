"""The options of ``macspec bench simulate``."""

from __future__ import annotations

from typing import Any

SIMULATE_DESCRIPTION = """\
Play recorded texts back on a simulated clock: what would drafting bring on
Macs whose costs somebody has published, how close is auto to the best fixed
drafter and depth, and is it ever slower than plain decoding?
"""

SIMULATE_EXAMPLE = """\
example:
  macspec bench simulate --curve m5-max-4bit
"""


def add_simulate(experiments: Any) -> None:
    it = experiments.add_parser(
        "simulate",
        usage="macspec bench simulate [options]",
        help="the controller on published costs of real Macs",
        description=SIMULATE_DESCRIPTION,
        epilog=SIMULATE_EXAMPLE,
    )
    it.add_argument(
        "--curve", metavar="NAME", help="only this machine's costs; default: all that ship"
    )
    it.add_argument("--traces", metavar="FILE", help="recorded traces; default: those that ship")
    it.add_argument("--json", action="store_true", help="one JSON object a line")
    it.set_defaults(experiment="simulate")
