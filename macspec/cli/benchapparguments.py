"""The options of ``macspec bench app``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ..bench.app.plan import PARTS

DESCRIPTION = """\
What the app costs: decode speed against macspec run on the same pair, the
share of a core that it takes, how soon it is there and gone, how soon a key
shows, and how long it ever freezes. The app runs in a terminal of its own and
in a folder of its own; Ctrl-C keeps what was measured.
"""

EXAMPLE = """\
example:
  macspec bench app
  macspec bench app --only start,keys --repeats 9 --out app.json
"""

Whole = Callable[..., Callable[[str], int]]


def add_app(
    experiments: Any,
    whole: Whole,
    listed: Callable[[str], list[str]],
    add_models: Callable[[Any], None],
) -> None:
    it = experiments.add_parser(
        "app",
        usage="macspec bench app [options]",
        help="what the app takes of decode speed and of a core, and how soon it answers",
        description=DESCRIPTION,
        epilog=EXAMPLE,
    )

    def parts(text: str) -> list[str]:
        """An argument type: measures between commas."""
        found = listed(text)
        for part in found:
            if part not in PARTS:
                raise argparse.ArgumentTypeError(
                    f"{part!r} is not measured: choose from {','.join(PARTS)}"
                )
        return found

    it.add_argument(
        "--only",
        metavar="A,B",
        type=parts,
        help=f"of {', '.join(PARTS)}; start is also leaving; default: all",
    )
    it.add_argument("--repeats", metavar="N", type=whole(1), default=5, help="(default: 5)")
    it.add_argument(
        "--prompt",
        metavar="TEXT",
        help="what the pair is asked; default: something with a long reply",
    )
    # Under a name of its own: no user's setting may change what is measured.
    it.add_argument(
        "--max-tokens",
        dest="longest",
        metavar="N",
        type=whole(16),
        help="longest reply; default: five seconds of it, but 256 to 1600",
    )
    it.add_argument("--seed", metavar="N", type=whole(0, 2**32), default=1, help="(default: 1)")
    it.add_argument("--out", metavar="FILE", help="also write it to a file that ends in .json")
    add_models(it)
    it.set_defaults(experiment="app")
