"""The options of what ``macspec bench`` can do beside measuring: simulate and record."""

from __future__ import annotations

from collections.abc import Callable
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

RECORD_DESCRIPTION = """\
Record what each drafter would have guessed of a pair's own replies to the
chats that ship, at temperatures 0, 0.7 and 1; or, with --forced, what
look-ups would have guessed of a given text.
"""

RECORD_EXAMPLE = """\
example:
  macspec bench record --out traces.json
  macspec bench simulate --traces traces.json
"""

Whole = Callable[..., Callable[[str], int]]


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
    it.add_argument(
        "--traces", metavar="FILE", help="texts from macspec bench record; default: what ships"
    )
    it.add_argument("--json", action="store_true", help="one JSON object a line")
    it.set_defaults(experiment="simulate")


def add_record(experiments: Any, whole: Whole, add_models: Callable[[Any], None]) -> None:
    it = experiments.add_parser(
        "record",
        usage="macspec bench record --out FILE [options]",
        help="record what drafters would have guessed",
        description=RECORD_DESCRIPTION,
        epilog=RECORD_EXAMPLE,
    )
    it.add_argument("--out", metavar="FILE", required=True, help="where to write it")
    it.add_argument(
        "--forced",
        metavar=("PROMPT", "TEXT"),
        nargs=2,
        help="two files: take TEXT for the reply to PROMPT, look-ups only",
    )
    it.add_argument(
        "--prompts", metavar="N", type=whole(1), default=60, help="how many chats (default: 60)"
    )
    it.add_argument(
        "--max-tokens",
        metavar="N",
        type=whole(1),
        default=160,
        help="longest reply (default: 160)",
    )
    add_models(it)
    it.set_defaults(experiment="record")
