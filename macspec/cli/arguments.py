"""What can be asked on the command line: every command and its help."""

from __future__ import annotations

from .bencharguments import add_bench
from .configarguments import add_config
from .historyarguments import add_history
from .modelarguments import add_models_commands
from .options import (
    add_conversation,
    add_models,
    add_output,
    add_reply,
    add_sampling,
    add_screen,
    add_speculation,
)
from .parser import Parser, Version, whole

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


EXAMPLE = """\
example:
  macspec --new
  macspec run "Hello, how are you?" --stats
"""


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
