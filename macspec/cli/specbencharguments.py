"""The options of ``macspec bench specbench``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

DESCRIPTION = """\
The six tasks of Spec-Bench (arXiv:2401.07851) on one pair: macspec beside
mlx-lm's plain loop and mlx-lm's own speculative decoding at its best depth.
Stop it at any time: the same command goes on where it was.
"""

EXAMPLE = """\
example:
  macspec bench specbench question.jsonl --out specbench.json --minutes 10
"""

Whole = Callable[..., Callable[[str], int]]


def add_specbench(
    experiments: Any,
    whole: Whole,
    temperatures: Callable[[str], list[float]],
    add_models: Callable[[Any], None],
) -> None:
    it = experiments.add_parser(
        "specbench",
        usage="macspec bench specbench FILE --out FILE [options]",
        help="Spec-Bench's six tasks beside mlx-lm, in runs that go on where the last one stopped",
        description=DESCRIPTION,
        epilog=EXAMPLE,
    )
    it.add_argument("file", metavar="FILE", help="Spec-Bench's question.jsonl")
    it.add_argument(
        "--out",
        metavar="FILE",
        required=True,
        help="where the measurement is kept; what is there already is not measured again",
    )
    it.add_argument(
        "--minutes",
        metavar="N",
        type=_minutes,
        help="end this run after so long; default: when done",
    )
    it.add_argument(
        "--tasks",
        metavar="N",
        type=whole(1, 80),
        default=8,
        help="questions of each task that fit the context, from all over it (default: 8)",
    )
    it.add_argument("--repeats", metavar="N", type=whole(1), default=3, help="(default: 3)")
    it.add_argument(
        "--draws",
        metavar="N",
        type=whole(1),
        default=4,
        help="times as many repeats where replies are drawn, each another text (default: 4)",
    )
    it.add_argument(
        "--temperature",
        dest="temperatures",
        metavar="X,Y",
        type=temperatures,
        help="default: 0,0.8",
    )
    it.add_argument(
        "--max-tokens", metavar="N", type=whole(1), default=256, help="longest reply (default: 256)"
    )
    it.add_argument(
        "--depths",
        metavar="N,N",
        type=_depths,
        help="among which mlx-lm's best is looked for; default: 1,2,3,4,6,8",
    )
    it.add_argument("--seed", metavar="N", type=whole(0, 2**32), default=1, help="(default: 1)")
    it.add_argument(
        "--kernels",
        choices=("auto", "off", "strict"),
        help="macspec's own Metal kernels, as for macspec run",
    )
    add_models(it)
    it.set_defaults(experiment="specbench")


def _minutes(text: str) -> float:
    """An argument type: a time of up to a day."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number <= 1440:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of minutes from 0 to 1440")
    return number


def _depths(text: str) -> list[int]:
    """An argument type: depths between commas."""
    try:
        found = [int(number) for number in text.split(",")]
    except ValueError:
        found = []
    if not found or len(set(found)) < len(found) or not all(1 <= it <= 32 for it in found):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of depths from 1 to 32, as in 2,3,4")
    return found
