"""The options of ``macspec bench``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from .specbencharguments import add_specbench
from .tracearguments import add_simulate

BENCH_DESCRIPTION = """\
Measure this pair: plain decoding, macspec and mlx-lm write the same replies in
turn, over and over, and every speed is compared with plain decoding's. Ctrl-C
keeps what was measured.
"""

BENCH_EXAMPLE = """\
example:
  macspec bench --quick
  macspec bench --arms plain,auto,draft@4:keyed,mlx-lm-draft@3 --temperature 0
  macspec bench --sweep depth --target ./my-model --draft ./my-small-model
"""

SWEEPS = (
    "depth", "drafters", "rules", "trees", "context", "kv-bits", "draft-bits", "concurrency",
)  # fmt: skip

Whole = Callable[..., Callable[[str], int]]


def add_bench(commands: Any, whole: Whole, add_models: Callable[[Any], None]) -> None:
    bench = commands.add_parser(
        "bench",
        usage="macspec bench [EXPERIMENT] [options]",
        help="measure speed honestly, and try the controller on machines that are not at hand",
        description=BENCH_DESCRIPTION,
        epilog=BENCH_EXAMPLE,
    )
    bench.set_defaults(command="bench", experiment="measure")
    bench.add_argument(
        "--quick", action="store_true", help="a first answer in less than two minutes"
    )
    _add_questions(bench, whole)
    _add_arms(bench)
    _add_protocol(bench, whole)
    _add_report(bench)
    add_models(bench)
    experiments = bench.add_subparsers(
        title="experiments", metavar="EXPERIMENT", prog="macspec bench"
    )
    add_simulate(experiments)
    add_specbench(experiments, whole, temperatures, add_models)


def listed(text: str) -> list[str]:
    """An argument type: names between commas."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of names between commas")
    return names


def temperatures(text: str) -> list[float]:
    """An argument type: temperatures between commas."""
    try:
        found = [float(number) for number in listed(text)]
    except ValueError:
        found = [-1.0]
    if not all(0 <= number <= 100 for number in found) or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no list of temperatures, each once, as in 0,0.7"
        )
    return found


def seconds(text: str) -> float:
    """An argument type: a time from nothing to an hour."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0 to 3600")
    return number


def minutes(text: str) -> float:
    """An argument type: a time above nothing, up to a week."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 10080:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of minutes above 0")
    return number


def _add_questions(bench: Any, whole: Whole) -> None:
    group = bench.add_argument_group("what is asked")
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--workloads", metavar="A,B", type=listed, help="of those that ship; default: all"
    )
    which.add_argument(
        "--prompts",
        metavar="FILE",
        help="prompts of your own: JSON lines as in Spec-Bench or HumanEval, or with a prompt each",
    )
    which.add_argument(
        "--replay",
        action="store_true",
        help="your own stored chats once more; nothing of them leaves this machine",
    )
    group.add_argument(
        "--tasks", metavar="N", type=whole(1), help="at most so many of each workload"
    )
    # Under a name of its own: no user's setting may change what is measured.
    group.add_argument(
        "--max-tokens", dest="longest", metavar="N", type=whole(1), help="longest reply"
    )
    force = group.add_mutually_exclusive_group()
    force.add_argument(
        "--forced",
        dest="force",
        action="store_true",
        default=None,
        help="decode along a recorded answer where a task has one; default: with the built-in "
        "pair, which cannot write them. Those of a file may be longer than the target was made "
        "for, if --context is",
    )
    force.add_argument(
        "--no-forced",
        dest="force",
        action="store_false",
        default=None,
        help="let the target write everything",
    )


def _add_arms(bench: Any) -> None:
    group = bench.add_argument_group("what is measured")
    group.add_argument(
        "--arms",
        metavar="A,B",
        type=listed,
        help="ways to write a reply: plain; auto, draft, ngram, suffix (@DEPTH, :RULE, "
        "+chains: without trees); mlx-lm; mlx-lm-draft (@DEPTH, or its best); server. Default: "
        "plain, auto, auto:keyed and both of mlx-lm's",
    )
    group.add_argument("--baseline", metavar="ARM", help="whose speed is 1; default: plain")
    group.add_argument(
        "--sweep",
        choices=SWEEPS,
        metavar="WHAT",
        help=f"one thing in all its settings: {', '.join(SWEEPS)}",
    )
    group.add_argument(
        "--server",
        metavar="ADDRESS",
        help="also a server of this machine that speaks OpenAI's protocol, as the arm server",
    )
    group.add_argument("--server-model", metavar="NAME", help="the model it is to answer with")
    group.add_argument(
        "--server-command", metavar="COMMAND", help="start it with this, and end it afterwards"
    )
    group.add_argument(
        "--aa",
        metavar="ARM",
        help="one arm against itself, twenty times: how often the interval holds 1.00",
    )
    group.add_argument(
        "--kernels",
        choices=("auto", "off", "strict"),
        help="macspec's own Metal kernels, as for macspec run",
    )


def _add_protocol(bench: Any, whole: Whole) -> None:
    group = bench.add_argument_group("how it is measured")
    group.add_argument(
        "--temperature",
        dest="temperatures",
        metavar="X,Y",
        type=temperatures,
        help="default: 0,0.7,1; with --quick 0,0.7",
    )
    group.add_argument("--repeats", metavar="N", type=whole(1), help="default: 5; with --quick 3")
    group.add_argument(
        "--minutes",
        metavar="M",
        type=minutes,
        help="begin no further prompt after so long; default: no limit; with --quick 1.4",
    )
    group.add_argument(
        "--seed", metavar="N", type=whole(0, 2**32), default=1, help="the first seed (default: 1)"
    )
    group.add_argument(
        "--ignore-end",
        action="store_true",
        help="let replies run to their limit, also where the model would end them",
    )
    group.add_argument(
        "--cool-down",
        metavar="S",
        type=seconds,
        default=0.0,
        help="seconds of rest before each reply, and wait while the chip is hot (default: 0)",
    )
    group.add_argument(
        "--profile",
        action="store_true",
        help="also split each round into draft, verify and host, by waiting after each",
    )


def _add_report(bench: Any) -> None:
    group = bench.add_argument_group("report")
    group.add_argument(
        "--out",
        metavar="PATH",
        help="where to write it: a folder, or a file that ends in .json; default: a new folder in "
        "macspec's data",
    )
    group.add_argument(
        "--no-plot", dest="plot", action="store_false", help="no pictures, also where matplotlib is"
    )
    group.add_argument(
        "--with-text",
        action="store_true",
        help="keep prompts and replies in the report, with mails, numbers, keys and paths masked",
    )
    group.add_argument(
        "--json", action="store_true", help="the report on standard output instead of tables"
    )
    group.add_argument(
        "--compare",
        metavar=("A", "B"),
        nargs=2,
        help="measure nothing: two reports side by side, and where they disagree",
    )
