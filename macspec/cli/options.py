"""Options that commands share: models, speculation, sampling, the reply, the conversation."""

from __future__ import annotations

import argparse

from ..choices import METHODS
from .historyarguments import LARGEST
from .parser import depth, some_text, whole


def add_models(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("models")
    group.add_argument(
        "--target",
        metavar="MODEL",
        help="whose text you want: a folder, a Hugging Face id (id@revision pins one), or "
        "built-in; default: the built-in pair",
    )
    group.add_argument(
        "--draft",
        metavar="MODEL",
        help="a smaller model with the same vocabulary, as a folder or an id, or none; "
        "default: none, or the built-in pair's",
    )
    group.add_argument(
        "--context",
        metavar="N",
        type=whole(1),
        help="positions to plan for; default: what the target allows",
    )
    group.add_argument(
        "--kv-bits",
        metavar="{2,4,8}",
        type=int,
        choices=(2, 4, 8),
        help="quantize the target's cache; default: the model's own precision",
    )
    group.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="let a model's folder bring Python code that runs on this machine",
    )


def add_speculation(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("speculation")
    group.add_argument(
        "--method",
        choices=METHODS,
        help="who drafts: the draft model, text that repeats (ngram; suffix: in past "
        "replies too), or nobody; auto: whatever should be fastest, before every round",
    )
    group.add_argument(
        "--depth",
        metavar="N",
        type=depth,
        help="tokens to draft in a round, 0 to 32, or auto",
    )
    group.add_argument(
        "--kernels",
        choices=("auto", "off", "strict"),
        help="on a Mac: macspec's own Metal kernels where they are right and faster (auto), "
        "none of them (off), or of those for matrices only what gives several rows the bits of "
        "one, whatever it costs (strict)",
    )
    group.add_argument(
        "--no-learn",
        dest="learn",
        action="store_false",
        default=None,
        help="neither use nor keep what earlier replies taught: what rounds cost, how often "
        "drafts stood, and the replies themselves; none of it leaves this machine",
    )
    group.add_argument(
        "--accept",
        choices=("block", "keyed", "match"),
        help="the acceptance rule: block is the fastest, keyed repeats its text for a --seed, "
        "match is the classic; all are exact (default: block)",
    )


def add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")

    def number(flag: str, default: float, text: str) -> None:
        group.add_argument(flag, metavar="X", type=float, help=f"{text} (default: {default:g})")

    number("--temperature", 0.7, "0 takes the best token")
    number("--top-p", 1.0, "keep the likeliest tokens up to this share")
    group.add_argument(
        "--top-k",
        metavar="N",
        type=whole(0),
        help="keep the N likeliest tokens; 0 keeps all (default: 0)",
    )
    number("--min-p", 0.0, "drop tokens below this share of the likeliest")
    number("--repetition-penalty", 1.0, "above 1: recent tokens become less likely")
    number("--presence-penalty", 0.0, "taken off the score of each recent token")
    number("--frequency-penalty", 0.0, "taken off it for every recent use")
    group.add_argument(
        "--seed",
        metavar="N",
        type=whole(0, 2**64 - 1),
        help="start of the random numbers; default: a new one for every reply",
    )


def add_reply(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("prompt and reply")
    group.add_argument("--system", metavar="TEXT", help="a system turn before the prompt")
    group.add_argument(
        "--raw", action="store_true", help="continue the prompt as it is, without a chat template"
    )
    _add_bounds(group)
    group.add_argument(
        "--stop",
        metavar="TEXT",
        type=some_text,
        action="append",
        default=[],
        help="end the reply before this text; may be given several times",
    )


def add_conversation(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("conversation")
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "-c",
        "--continue",
        dest="chat",
        action="store_const",
        const="last",
        help="go on with the last conversation, its system turn, sampling and models",
    )
    which.add_argument(
        "--chat",
        metavar="ID",
        type=whole(1, LARGEST),
        help="go on with this one; macspec history lists them",
    )
    group.add_argument(
        "--no-save",
        dest="save",
        action="store_false",
        default=None,
        help="do not keep prompt and reply in the history on this machine",
    )


def add_screen(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("conversation")
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--chat",
        metavar="ID",
        type=whole(1, LARGEST),
        help="open this one; macspec history lists them",
    )
    which.add_argument("--new", action="store_true", help="begin a new one")
    group.add_argument(
        "--no-save",
        dest="save",
        action="store_false",
        default=None,
        help="keep nothing of this session in the history on this machine",
    )
    group.add_argument(
        "--system", metavar="TEXT", help="the system prompt of conversations that are new"
    )
    _add_bounds(group)
    group = parser.add_argument_group("screen")
    group.add_argument(
        "--plain",
        action="store_true",
        help="no screen: a conversation line by line, also for screen readers",
    )
    group.add_argument(
        "--keys", action="store_true", help="list every action with its keys and command, and leave"
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "--stats", action="store_true", help="a table of what it took, on standard error"
    )
    group.add_argument(
        "--json", action="store_true", help="one JSON event a line; the last has the statistics"
    )


def _add_bounds(group: argparse._ArgumentGroup) -> None:
    """Whether a reply reasons, and where it ends."""
    group.add_argument(
        "--think",
        choices=("on", "off"),
        help="reasoning before the answer, where the model's template has a switch for it",
    )
    group.add_argument(
        "--max-tokens",
        metavar="N",
        type=whole(1),
        help="longest reply; default: until the model ends it or the context is full",
    )
