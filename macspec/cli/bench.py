"""``macspec bench``: its options, and which of its commands runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ..choices import MAX_DEPTH, MODELS
from .options import Parser, add_actions, add_flag, add_models, add_setting, whole

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

SPECBENCH_DESCRIPTION = """\
The six tasks of Spec-Bench (arXiv:2401.07851) on one pair: macspec beside
mlx-lm's plain loop and mlx-lm's own speculative decoding at its best depth.
With the built-in pair macspec drafts with its head, as it does by default.
Stop it at any time: the same command continues where it stopped.
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
    add_flag(it, "--quick", "a first answer in under two minutes")
    _add_questions(it.add_argument_group("prompts"))
    _add_arms(it.add_argument_group("arms"))
    _add_protocol(it.add_argument_group("protocol"))
    _add_report(it.add_argument_group("report"))
    add_models(it)
    experiment = add_actions(it, "experiment")
    _add_simulate(experiment)
    _add_specbench(experiment)


def listed(text: str) -> list[str]:
    """An argument type: names between commas."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names between commas")
    return names


def numbers(
    kind: type[Any], lowest: float, highest: float, what: str, *, several: bool = True
) -> Callable[[str], Any]:
    """An argument type: a number in a range, or several between commas, each once."""

    def parse(text: str) -> Any:
        try:
            found = [kind(it) for it in (text.split(",") if several else [text])]
        except ValueError:
            found = []
        known = found and all(lowest <= it <= highest for it in found)
        if not known or len(set(found)) < len(found):
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return found if several else found[0]

    return parse


seconds = numbers(float, 0, 3600, "a number of seconds from 0 to 3600", several=False)

minutes = numbers(float, 1e-9, 10080, "a number of minutes above 0, up to a week", several=False)

temperatures = numbers(float, 0, 100, "a list of temperatures, each once, as in 0,0.7")

depths = numbers(int, 1, MAX_DEPTH, f"a list of depths from 1 to {MAX_DEPTH}, as in 2,3,4")


def _add(group: Any, flag: str, metavar: str, about: str, kind: Any = str, **more: Any) -> None:
    """An option that takes a value."""
    group.add_argument(flag, metavar=metavar, help=about, type=kind, **more)


def _add_questions(group: Any) -> None:
    which = group.add_mutually_exclusive_group()
    _add(which, "--workloads", "A,B", "of those that ship (default: all)", listed)
    own = "your own: JSON lines in Spec-Bench's or HumanEval's form, or with a prompt each"
    _add(which, "--prompts", "FILE", own)
    chats = "your own stored chats; nothing of them leaves this machine"
    add_flag(which, "--replay", chats)
    _add(group, "--tasks", "N", "at most this many of each workload", whole(1))
    # Under a name of its own: no user's setting may change what is measured.
    _add(group, "--max-tokens", "N", "longest reply", whole(1), dest="longest")
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
    about = "let the target write every reply"
    force.add_argument("--no-forced", dest="force", action="store_false", default=None, help=about)


def _add_arms(group: Any) -> None:
    _add(
        group,
        "--arms",
        "A,B",
        f"what to compare: plain; auto, {', '.join(MODELS)}, ngram, suffix (@DEPTH, :RULE, "
        "+chains: without trees, +kvBITS, +draftBITS, /N: N sessions at once); mlx-lm; "
        "mlx-lm-draft (@DEPTH, or its best); server (default: plain, auto, auto:keyed and both "
        "of mlx-lm's)",
        listed,
    )
    _add(group, "--baseline", "ARM", "whose speed is 1 (default: plain)")
    over = f"vary one thing over all its settings: {', '.join(SWEEPS)}"
    _add(group, "--sweep", "WHAT", over, choices=SWEEPS)
    server = "also a server on this machine that speaks OpenAI's protocol, as the arm server"
    _add(group, "--server", "ADDRESS", server)
    _add(group, "--server-model", "NAME", "the model it should use")
    _add(group, "--server-command", "COMMAND", "start it with this, and stop it afterwards")
    often = "one arm against itself, twenty times: how often does the interval hold 1.00?"
    _add(group, "--null-test", "ARM", often)
    group.add_argument("--aa", dest="null_test", help=argparse.SUPPRESS)  # old spelling
    add_setting(group, "speculation.kernels")


def _add_protocol(group: Any) -> None:
    usual = "(default: 0,0.7,1; with --quick 0,0.7)"
    _add(group, "--temperature", "X,Y", usual, temperatures, dest="temperatures")
    _add(group, "--repeats", "N", "(default: 5; with --quick 3)", whole(1))
    end = "begin no further prompt after this time (default: no limit; with --quick 1.4)"
    _add(group, "--minutes", "M", end, minutes)
    _add(group, "--seed", "N", "the first seed (default: 1)", whole(0, 2**32), default=1)
    past = "let replies run to their limit, past the model's end of turn"
    add_flag(group, "--ignore-end", past)
    _add(
        group,
        "--cool-down",
        "S",
        "rest this many seconds before each reply, and wait while the chip is hot (default: 0)",
        seconds,
        default=0.0,
    )
    parts = "also split rounds into draft, verify and host, by waiting after each part"
    add_flag(group, "--profile", parts)


def _add_report(group: Any) -> None:
    out = "a folder, or a file that ends in .json (default: a new folder in macspec's data)"
    _add(group, "--out", "PATH", out)
    group.add_argument(
        "--no-plot", dest="plot", action="store_false", help="no pictures, even with matplotlib"
    )
    add_flag(
        group,
        "--with-text",
        "keep prompts and replies in the report, with e-mail addresses, numbers, keys and "
        "paths masked",
    )
    add_flag(group, "--json", "print the report as JSON instead of tables")
    group.add_argument(
        "--compare",
        metavar=("A", "B"),
        nargs=2,
        help="measure nothing: show two reports side by side, and where they disagree",
    )


def _add_simulate(experiment: Callable[..., Any]) -> None:
    about = "the controller on published costs of real Macs"
    example = "--curve m5-max-4bit"
    it = experiment("simulate", "[options]", about, example, SIMULATE_DESCRIPTION)
    _add(it, "--curve", "NAME", "only this machine's costs (default: all)")
    _add(it, "--traces", "FILE", "recorded traces (default: those that ship)")
    add_flag(it, "--json", "one JSON object per line")


def _add_specbench(experiment: Callable[..., Any]) -> None:
    about = "Spec-Bench's six tasks beside mlx-lm, in runs that can be resumed"
    example = "question.jsonl --out specbench.json --minutes 10"
    usage = "FILE --out FILE [options]"
    it = experiment("specbench", usage, about, example, SPECBENCH_DESCRIPTION)
    it.add_argument("file", metavar="FILE", help="Spec-Bench's question.jsonl")
    kept = "where the measurement is kept; what it already holds is not measured again"
    _add(it, "--out", "FILE", kept, required=True)
    _add(it, "--minutes", "N", "end this run after this time", minutes)
    fitting = "questions of each task that fit the context, taken evenly (default: 8)"
    _add(it, "--tasks", "N", fitting, whole(1, 80), default=8)
    _add(it, "--repeats", "N", "(default: 3)", whole(1), default=3)
    more = "times as many repeats where replies are drawn, each another text (default: 4)"
    _add(it, "--draws", "N", more, whole(1), default=4)
    warm = {"dest": "temperatures", "default": [0.0, 0.8]}
    _add(it, "--temperature", "X,Y", "(default: 0,0.8)", temperatures, **warm)
    _add(it, "--max-tokens", "N", "longest reply (default: 256)", whole(1), default=256)
    tried = "depths to try for mlx-lm's best (default: 1,2,3,4,6,8)"
    _add(it, "--depths", "N,N", tried, depths, default=[1, 2, 3, 4, 6, 8])
    _add(it, "--seed", "N", "(default: 1)", whole(0, 2**32), default=1)
    add_setting(it, "speculation.kernels")
    add_models(it)
