"""What can be asked on the command line: options, their ranges and their help."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from .commands.bencharguments import add_bench
from .commands.historyarguments import LARGEST, add_history
from .commands.modelarguments import add_models_commands
from .depth import METHODS
from .plaintext import one_line

DESCRIPTION = """\
Exact speculative decoding for chat: a small draft model guesses, the target
model checks several guesses in one pass, and the text is the target's own.
"""

CHAT_DESCRIPTION = """\
Chat on the terminal, with a live view of speculation; macspec alone does the
same. It goes on with the last conversation. Without a terminal, and with
--plain, it is a conversation line by line: each line is a message or a
command, a backslash at its end goes on in the next one, and the end of input
leaves. Through a pipe the exit status is 2 if something could not be done.
"""

CHAT_EXAMPLE = """\
example:
  macspec chat --target ./my-model --draft ./my-small-model
  macspec --chat 12
"""

RUN_EXAMPLE = """\
example:
  macspec run "Book a table for two at seven." --stats
  git diff | macspec run "Describe this change in one line." --temperature 0
"""

CHECK_DESCRIPTION = """\
Show the machine and the pair, then prove on this very pair that speculation
changes nothing: greedy and keyed replies with and without it must be the same
tokens. Exit status 0: they are, or part only where two tokens nearly tie;
1: they are not; 2: an error.
"""

CHECK_EXAMPLE = """\
example:
  macspec check --target ./my-model --draft ./my-small-model
"""

CONFIG_DESCRIPTION = """\
Show the settings that hold and where each is from: the default, the file, or
a MACSPEC_SECTION_NAME variable of the environment. The command line comes
before the environment, and that before the file.
"""

CONFIG_EXAMPLE = """\
example:
  macspec config set sampling.temperature 0.4
"""

CONFIG_EXAMPLES = {
    "show": "show models.target",
    "set": "set speculation.accept keyed",
    "unset": "unset models.draft",
    "edit": "edit",
    "path": "path",
}

EXAMPLE = """\
example:
  macspec --new
  macspec run "Hello, how are you?" --stats
"""


class Parser(argparse.ArgumentParser):
    """A parser whose every complaint is one line with exit status 2."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", Formatter)
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        complain(f"{message.removeprefix('argument ')} (see {self.prog} --help)")
        self.exit(2)


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Examples as they are written, options in a column that fits 80 characters."""

    def __init__(self, prog: str, **settings: Any) -> None:
        super().__init__(prog, **{**settings, "max_help_position": 30})


class Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"macspec {version('macspec')}")
        parser.exit()


def whole(lowest: int, highest: int | None = None) -> Callable[[str], int]:
    """An argument type: a whole number in a range."""

    def parse(text: str) -> int:
        limits = f"from {lowest} to {highest}" if highest is not None else f"of at least {lowest}"
        try:
            number = int(text)
        except ValueError:
            number = None
        if number is None or number < lowest or (highest is not None and number > highest):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {limits}")
        return number

    return parse


def depth(text: str) -> int | str:
    """An argument type: how many tokens to draft in a round."""
    if text == "auto":
        return text
    try:
        return whole(0, 32)(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither auto nor a whole number from 0 to 32"
        ) from None


def some_text(text: str) -> str:
    """An argument type: any text but the empty one."""
    if not text:
        raise argparse.ArgumentTypeError("the text is empty")
    return text


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


def add_config(commands: Any) -> None:
    config = commands.add_parser(
        "config",
        usage="macspec config [ACTION] [options]",
        help="show and change the settings",
        description=CONFIG_DESCRIPTION,
        epilog=CONFIG_EXAMPLE,
    )
    config.set_defaults(command="config", action="show", key=None, json=False)
    actions = config.add_subparsers(title="actions", metavar="ACTION", prog="macspec config")

    def action(name: str, arguments: str, text: str, *places: tuple[str, str]) -> Parser:
        usage = f"macspec config {name}{arguments}"
        example = f"example:\n  macspec config {CONFIG_EXAMPLES[name]}"
        it: Parser = actions.add_parser(
            name, usage=usage, help=text, description=f"{text.capitalize()}.", epilog=example
        )
        for place, meaning in places:
            it.add_argument(place.lower(), metavar=place, help=meaning)
        it.set_defaults(action=name)
        return it

    key = ("KEY", "section and name, as macspec config shows them")
    it = action("show", " [KEY] [options]", "the settings that hold, and where they are from")
    it.add_argument("key", metavar="KEY", nargs="?", help="only this one, with what it does")
    it.add_argument("--json", action="store_true", help="one JSON object a line")
    action("set", " KEY VALUE", "change one in the file", key, ("VALUE", "what it shall be"))
    action("unset", " KEY", "take one out of the file", key)
    action("edit", "", "open the file in $VISUAL or $EDITOR")
    action("path", "", "where the file is")


def build_parser() -> Parser:
    parser = Parser(
        prog="macspec",
        usage="macspec [--version] [--help] [COMMAND] ...",
        description=DESCRIPTION,
        epilog=EXAMPLE,
    )
    parser.add_argument("--version", action=Version, nargs=0, help="show the version and leave")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", prog="macspec")

    it = commands.add_parser(
        "chat",
        usage="macspec [chat] [options]",
        help="chat on the terminal; what macspec does without a command",
        description=CHAT_DESCRIPTION,
        epilog=CHAT_EXAMPLE,
    )
    add_screen(it)
    add_models(it)
    add_speculation(it)
    add_sampling(it)
    it.set_defaults(command="chat")

    it = commands.add_parser(
        "run",
        usage="macspec run [PROMPT] [options]",
        help="answer one prompt",
        description="Answer one prompt. Only the reply's text goes to standard output.",
        epilog=RUN_EXAMPLE,
    )
    it.add_argument(
        "prompt",
        metavar="PROMPT",
        nargs="?",
        help="the prompt; text piped to standard input is the prompt too, or follows this one "
        "after an empty line",
    )
    add_models(it)
    add_speculation(it)
    add_sampling(it)
    add_reply(it)
    add_conversation(it)
    add_output(it)
    it.set_defaults(command="run")

    it = commands.add_parser(
        "check",
        usage="macspec check [options]",
        help="what this machine and this pair can do, and whether speculation is lossless here",
        description=CHECK_DESCRIPTION,
        epilog=CHECK_EXAMPLE,
    )
    add_models(it)
    group = it.add_argument_group("self-test")
    group.add_argument(
        "--prompts", metavar="N", type=whole(1), default=4, help="how many prompts (default: 4)"
    )
    group.add_argument(
        "--max-tokens",
        metavar="N",
        type=whole(1),
        default=48,
        help="longest reply to each (default: 48)",
    )
    it.add_argument(
        "--kernels",
        action="store_true",
        help="instead of the self-test: macspec's Metal kernels for this pair, whether each "
        "proved right here, and how fast it is beside MLX's",
    )
    it.add_argument(
        "--report",
        action="store_true",
        help="instead of it: versions, chip, settings and the ends of the logs, to go with a "
        "problem that you report; no text of yours",
    )
    it.set_defaults(command="check")
    add_bench(commands, whole, add_models)
    add_config(commands)
    add_models_commands(commands, whole)
    add_history(commands, whole)
    return parser


def complain(message: str) -> None:
    """One line on standard error."""
    if sys.stderr is not None:
        print(f"macspec: error: {one_line(message)}", file=sys.stderr)
