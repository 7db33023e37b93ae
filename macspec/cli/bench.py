"""``macspec bench``: its options, and which of its commands runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ..choices import MAX_DEPTH
from .options import Parser, add_models, add_setting, whole

DESCRIPTION = """\
Measure this pair: plain decoding, macspec and mlx-lm write the same replies in
turn, over and over, and all speeds are compared with plain decoding's. Ctrl-C
keeps what was measured.
"""

EXAMPLE = """\
example:
  macspec bench --quick
  macspec bench --arms plain,auto,draft@4:keyed,mlx-lm-draft@3 --temperature 0
  macspec bench --sweep depth --target ./my-model --draft ./my-small-model
"""

SIMULATE_DESCRIPTION = """\
Play recorded texts back on a simulated clock. How much would drafting gain on
Macs whose costs somebody has published, how close does auto come to the best
fixed drafter and depth, and is it ever slower than plain decoding?
"""

SIMULATE_EXAMPLE = """\
example:
  macspec bench simulate --curve m5-max-4bit
"""

SPECBENCH_DESCRIPTION = """\
The six tasks of Spec-Bench (arXiv:2401.07851) on one pair: macspec beside
mlx-lm's plain loop and mlx-lm's own speculative decoding at its best depth.
Stop it at any time: the same command continues where it stopped.
"""

SPECBENCH_EXAMPLE = """\
example:
  macspec bench specbench question.jsonl --out specbench.json --minutes 10
"""

SWEEPS = (
    "depth", "drafters", "rules", "trees", "context", "kv-bits", "draft-bits", "concurrency",
)  # fmt: skip


def bench(options: argparse.Namespace) -> int:
    """Run one of the commands; returns the exit status."""
    from . import benchcommands

    run: Callable[[argparse.Namespace], int] = getattr(benchcommands, options.experiment)
    return run(options)


def add_options(it: Parser) -> None:
    it.usage = "macspec bench [EXPERIMENT] [options]"
    it.description, it.epilog = DESCRIPTION, EXAMPLE
    it.set_defaults(command="bench", experiment="measure")
    it.add_argument("--quick", action="store_true", help="a first answer in under two minutes")
    _add_questions(it.add_argument_group("prompts"))
    _add_arms(it.add_argument_group("arms"))
    _add_protocol(it.add_argument_group("protocol"))
    _add_report(it.add_argument_group("report"))
    add_models(it)
    experiments = it.add_subparsers(title="experiments", metavar="EXPERIMENT", prog="macspec bench")
    _add_simulate(experiments)
    _add_specbench(experiments)


def listed(text: str) -> list[str]:
    """An argument type: names between commas."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names between commas")
    return names


def between(lowest: float, highest: float, what: str) -> Callable[[str], float]:
    """An argument type: a number in a range, ``lowest`` excluded where it is 0 minutes."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if not lowest <= number <= highest:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return number

    return parse


seconds = between(0, 3600, "a number of seconds from 0 to 3600")

minutes = between(1e-9, 10080, "a number of minutes above 0, up to a week")


def temperatures(text: str) -> list[float]:
    """An argument type: temperatures between commas."""
    try:
        found = [float(number) for number in listed(text)]
    except ValueError:
        found = [-1.0]
    if not all(0 <= number <= 100 for number in found) or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of temperatures, each once, as in 0,0.7"
        )
    return found


def depths(text: str) -> list[int]:
    """An argument type: depths between commas."""
    try:
        found = [int(number) for number in text.split(",")]
    except ValueError:
        found = []
    if not found or len(set(found)) < len(found) or not all(1 <= it <= MAX_DEPTH for it in found):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of depths from 1 to {MAX_DEPTH}, as in 2,3,4"
        )
    return found


def _add_questions(group: Any) -> None:
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--workloads", metavar="A,B", type=listed, help="of those that ship (default: all)"
    )
    which.add_argument(
        "--prompts",
        metavar="FILE",
        help="your own: JSON lines in Spec-Bench's or HumanEval's form, or with a prompt each",
    )
    which.add_argument(
        "--replay",
        action="store_true",
        help="your own stored chats; nothing of them leaves this machine",
    )
    group.add_argument(
        "--tasks", metavar="N", type=whole(1), help="at most this many of each workload"
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
        help="decode along recorded answers where tasks have one (default: with the built-in "
        "pair, which cannot write them); in a file of prompts they may exceed the context that "
        "the target was made for, if --context allows it",
    )
    force.add_argument(
        "--no-forced",
        dest="force",
        action="store_false",
        default=None,
        help="let the target write every reply",
    )


def _add_arms(group: Any) -> None:
    group.add_argument(
        "--arms",
        metavar="A,B",
        type=listed,
        help="what to compare: plain; auto, draft, ngram, suffix (@DEPTH, :RULE, +chains: "
        "without trees, +kvBITS, +draftBITS, /N: N sessions at once); mlx-lm; mlx-lm-draft "
        "(@DEPTH, or its best); server (default: plain, auto, auto:keyed and both of mlx-lm's)",
    )
    group.add_argument("--baseline", metavar="ARM", help="whose speed is 1 (default: plain)")
    group.add_argument(
        "--sweep",
        choices=SWEEPS,
        metavar="WHAT",
        help=f"vary one thing over all its settings: {', '.join(SWEEPS)}",
    )
    group.add_argument(
        "--server",
        metavar="ADDRESS",
        help="also a server on this machine that speaks OpenAI's protocol, as the arm server",
    )
    group.add_argument("--server-model", metavar="NAME", help="the model it should use")
    group.add_argument(
        "--server-command", metavar="COMMAND", help="start it with this, and stop it afterwards"
    )
    group.add_argument(
        "--null-test",
        metavar="ARM",
        help="one arm against itself, twenty times: how often does the interval hold 1.00?",
    )
    group.add_argument("--aa", dest="null_test", help=argparse.SUPPRESS)  # old spelling
    add_setting(group, "speculation.kernels")


def _add_protocol(group: Any) -> None:
    group.add_argument(
        "--temperature",
        dest="temperatures",
        metavar="X,Y",
        type=temperatures,
        help="(default: 0,0.7,1; with --quick 0,0.7)",
    )
    group.add_argument("--repeats", metavar="N", type=whole(1), help="(default: 5; with --quick 3)")
    group.add_argument(
        "--minutes",
        metavar="M",
        type=minutes,
        help="begin no further prompt after this time (default: no limit; with --quick 1.4)",
    )
    group.add_argument(
        "--seed", metavar="N", type=whole(0, 2**32), default=1, help="the first seed (default: 1)"
    )
    group.add_argument(
        "--ignore-end",
        action="store_true",
        help="let replies run to their limit, past the model's end of turn",
    )
    group.add_argument(
        "--cool-down",
        metavar="S",
        type=seconds,
        default=0.0,
        help="rest this many seconds before each reply, and wait while the chip is hot "
        "(default: 0)",
    )
    group.add_argument(
        "--profile",
        action="store_true",
        help="also split rounds into draft, verify and host, by waiting after each part",
    )


def _add_report(group: Any) -> None:
    group.add_argument(
        "--out",
        metavar="PATH",
        help="a folder, or a file that ends in .json (default: a new folder in macspec's data)",
    )
    group.add_argument(
        "--no-plot", dest="plot", action="store_false", help="no pictures, even with matplotlib"
    )
    group.add_argument(
        "--with-text",
        action="store_true",
        help="keep prompts and replies in the report, with e-mail addresses, numbers, keys and "
        "paths masked",
    )
    group.add_argument(
        "--json", action="store_true", help="print the report as JSON instead of tables"
    )
    group.add_argument(
        "--compare",
        metavar=("A", "B"),
        nargs=2,
        help="measure nothing: show two reports side by side, and where they disagree",
    )


def _add_simulate(experiments: Any) -> None:
    it = experiments.add_parser(
        "simulate",
        usage="macspec bench simulate [options]",
        help="the controller on published costs of real Macs",
        description=SIMULATE_DESCRIPTION,
        epilog=SIMULATE_EXAMPLE,
    )
    it.add_argument("--curve", metavar="NAME", help="only this machine's costs (default: all)")
    it.add_argument("--traces", metavar="FILE", help="recorded traces (default: those that ship)")
    it.add_argument("--json", action="store_true", help="one JSON object per line")
    it.set_defaults(experiment="simulate")


def _add_specbench(experiments: Any) -> None:
    it = experiments.add_parser(
        "specbench",
        usage="macspec bench specbench FILE --out FILE [options]",
        help="Spec-Bench's six tasks beside mlx-lm, in runs that can be resumed",
        description=SPECBENCH_DESCRIPTION,
        epilog=SPECBENCH_EXAMPLE,
    )
    it.add_argument("file", metavar="FILE", help="Spec-Bench's question.jsonl")
    it.add_argument(
        "--out",
        metavar="FILE",
        required=True,
        help="where the measurement is kept; what it already holds is not measured again",
    )
    it.add_argument("--minutes", metavar="N", type=minutes, help="end this run after this time")
    it.add_argument(
        "--tasks",
        metavar="N",
        type=whole(1, 80),
        default=8,
        help="questions of each task that fit the context, taken evenly (default: 8)",
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
        default=[0.0, 0.8],
        help="(default: 0,0.8)",
    )
    it.add_argument(
        "--max-tokens", metavar="N", type=whole(1), default=256, help="longest reply (default: 256)"
    )
    it.add_argument(
        "--depths",
        metavar="N,N",
        type=depths,
        default=[1, 2, 3, 4, 6, 8],
        help="depths to try for mlx-lm's best (default: 1,2,3,4,6,8)",
    )
    it.add_argument("--seed", metavar="N", type=whole(0, 2**32), default=1, help="(default: 1)")
    add_setting(it, "speculation.kernels")
    add_models(it)
    it.set_defaults(experiment="specbench")
