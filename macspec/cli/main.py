"""The command line: its commands, which one runs, and how errors and interrupts end it.

Nothing here imports MLX or Textual: help and version answer at once. What a command needs is
imported when it runs.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from ..errors import BadOptionError, MacspecError, brief, is_panic, known_failure
from ..terminal import complain, decoded, leave_on_interrupt, read_prompt, status_of
from .options import (
    LAST,
    Parser,
    Version,
    add_chat_choice,
    add_decoding,
    add_flag,
    add_models,
    add_section,
    add_setting,
    fill,
    some_text,
    whole,
)

DESCRIPTION = """\
Fast local LLM chat for Apple Silicon: a small model drafts, your model
verifies, and the output is exactly your model's.
"""

EXAMPLE = """\
example:
  macspec --new
  macspec run "Hello, how are you?" --stats
"""

CHAT_DESCRIPTION = """\
Chat in the terminal with a live view of speculative decoding; this is what
macspec does without a command. It continues the last conversation. With
--plain, or without a terminal, you chat line by line: each line is a message
or a command, a backslash at its end continues it on the next line, and the
end of input leaves. With piped input the exit status is 2 if anything failed.
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
Show the machine and the pair, then run a self-check of this pair: greedy and
keyed replies must have the same tokens with speculation as without. Exit
status 0: they do, or differ only where two tokens nearly tie; 1: they do not;
2: an error.
"""

BROKEN_PIPE = 141  # as a shell reports SIGPIPE

OF_MACSPEC = ("-h", "--help", "--version")
"""Options that need no command; any other option before a command means chat."""

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


COMMANDS = {
    "chat": "chat in the terminal; the default without a command",
    "run": "answer one prompt",
    "serve": "serve a pair to editors and scripts with OpenAI's protocol",
    "check": "show this machine and pair, and check that speculation is lossless here",
    "bench": "measure the speed of a pair, or simulate it on other machines",
    "config": "show and change the settings",
    "models": "list, download, plan, delete and quantize models",
    "history": "list, search, show, export and delete conversations",
}


def build_parser(command: str | None = None) -> Parser:
    """The parser of the command line, with the options of one command or (None) of all."""
    parser = Parser(
        prog="macspec",
        usage="macspec [--version] [--help] [COMMAND] ...",
        description=DESCRIPTION,
        epilog=EXAMPLE,
    )
    parser.add_argument("--version", action=Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", prog="macspec", dest="command"
    )
    for name, about in COMMANDS.items():
        it = commands.add_parser(name, help=about)
        if command in (None, name):
            (OPTIONS.get(name) or _module(name).add_options)(it)
    return parser


def _chat_options(it: Parser) -> None:
    it.usage = "macspec [chat] [options]"
    it.description, it.epilog = CHAT_DESCRIPTION, CHAT_EXAMPLE
    group = it.add_argument_group("conversation")
    which = add_chat_choice(group, "open")
    add_flag(which, "--new", "start a new conversation")
    add_setting(group, "history.save")
    add_setting(group, "reply.system", "; only for new conversations")
    add_setting(group, "reply.think")
    add_setting(group, "reply.max_tokens")
    group = it.add_argument_group("screen")
    add_flag(group, "--plain", "chat line by line; suits screen readers")
    add_flag(group, "--keys", "list every action with its keys and command, and exit")
    add_decoding(it)
    add_section(it, "control")


def _run_options(it: Parser) -> None:
    it.usage = "macspec run [PROMPT] [options]"
    it.description = "Answer one prompt. Only the reply's text goes to standard output."
    it.epilog = RUN_EXAMPLE
    it.add_argument(
        "prompt",
        metavar="PROMPT",
        nargs="?",
        help="the prompt; text piped to standard input is the prompt too, or follows this one "
        "after an empty line",
    )
    add_decoding(it)
    group = it.add_argument_group("prompt and reply")
    add_setting(group, "reply.system")
    add_flag(group, "--raw", "continue the prompt as it is, without a chat template")
    add_setting(group, "reply.think")
    add_setting(group, "reply.max_tokens")
    group.add_argument(
        "--stop",
        metavar="TEXT",
        type=some_text,
        action="append",
        default=[],
        help="end the reply before this text; may be given several times",
    )
    group = it.add_argument_group("conversation")
    which = add_chat_choice(group, "continue")
    which.add_argument(
        "-c",
        "--continue",
        dest="chat",
        action="store_const",
        const=LAST,
        help="continue the last conversation with its system prompt, sampling and models",
    )
    add_setting(group, "history.save")
    group = it.add_argument_group("output")
    add_flag(group, "--stats", "print a table of statistics on standard error")
    add_flag(group, "--json", "print one JSON event a line; the last has statistics")


def _check_options(it: Parser) -> None:
    it.usage = "macspec check [options]"
    it.description = CHECK_DESCRIPTION
    it.epilog = "example:\n  macspec check --target ./my-model --draft ./my-small-model\n"
    add_models(it)
    group = it.add_argument_group("self-check")
    group.add_argument(
        "--prompts", metavar="N", type=whole(1), default=4, help="number of prompts (default: 4)"
    )
    group.add_argument(
        "--max-tokens",
        metavar="N",
        type=whole(1),
        default=48,
        help="most tokens in a reply (default: 48)",
    )
    group = it.add_argument_group("instead of the self-check")
    add_flag(
        group,
        "--kernels",
        "list macspec's Metal kernels for this pair: whether each passed its self-check "
        "here, and its speed relative to MLX's",
    )
    add_flag(
        group,
        "--json",
        "with --kernels: the same as one JSON document, with what was expected of each, to "
        "send in a report",
    )
    add_flag(
        group,
        "--report",
        "print a report to attach to a bug report: versions, chip, settings and the ends "
        "of the logs, but none of your text",
    )


OPTIONS = {"chat": _chat_options, "run": _run_options, "check": _check_options}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    0 done, 1 a check failed, 2 an error in one line, 130 interrupted, 141 the reader went away.
    """
    leave_on_interrupt()
    _open_descriptors()
    try:
        status = _run(argv)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        return status
    except KeyboardInterrupt as interrupt:
        return status_of(interrupt)
    except BrokenPipeError:
        _silence(sys.stdout, sys.stderr)
        return BROKEN_PIPE
    except BaseException as error:
        debugging = os.environ.get("MACSPEC_DEBUG", "0") not in ("", "0")
        if debugging or not (isinstance(error, Exception) or is_panic(error)):
            raise
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            _silence(sys.stdout)
        complain(_explain(error))
        return 2


def _explain(error: BaseException) -> str:
    if isinstance(error, MacspecError):
        return str(error)
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return f"cannot write the output: {error.strerror}"
    return known_failure(error) or (
        f"unexpected {type(error).__name__}: {brief(error)} (a bug in macspec: please report it "
        "with what MACSPEC_DEBUG=1 shows and the output of macspec check)"
    )


def _run(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in OF_MACSPEC):
        arguments.insert(0, "chat")
    first = arguments[1] if arguments[1:] else ""
    if arguments[0] == "history" and first.startswith("-") and first not in OF_MACSPEC:
        arguments.insert(1, "list")
    try:
        options = build_parser(arguments[0]).parse_args(arguments)
    except SystemExit as leaving:
        return int(leaving.code or 0)
    return RUN[options.command](options)


def _fill(options: argparse.Namespace) -> None:
    options.trouble = ""
    options.effective = fill(options)
    options.settings = options.effective.config


def _fill_without_file(options: argparse.Namespace, error: BadOptionError) -> None:
    """As ``_fill`` where the settings file is broken: the app starts on the defaults, and says so.
    Whatever else is wrong is raised again."""
    from ..config.effective import load

    options.effective = fill(options, load(without_file=True))
    options.settings = options.effective.config
    options.trouble = f"{error}; using the defaults (macspec config edit opens it)"


def chat(options: argparse.Namespace) -> int:
    from ..app.start import chat, list_keys, recall

    if not options.keys:
        recall(options)
    try:
        _fill(options)
    except BadOptionError as error:
        _fill_without_file(options, error)
    if options.keys:
        list_keys(options)
        return 0
    options.system = decoded(options.system or "")
    status: int = chat(options)
    return status


def run(options: argparse.Namespace) -> int:
    from .saving import Conversation

    if options.raw and options.chat is not None:
        raise BadOptionError("--raw uses no chat template: omit --continue and --chat")
    conversation = Conversation(options)
    _fill(options)
    if options.raw and (options.system or options.think):
        raise BadOptionError("--raw uses no chat template: omit --system and --think")
    options.prompt = read_prompt(options.prompt)
    options.system = decoded(options.system or "")
    options.stop = [decoded(text) for text in options.stop]
    from .run import run

    return run(options, conversation)


def check(options: argparse.Namespace) -> int:
    if options.report:
        from ..diagnostics import report

        return report(target=options.target, draft=options.draft)
    _fill(options)
    from .check import check

    return check(options)


def _filled(options: argparse.Namespace) -> int:
    _fill(options)
    return _call(options)


def _call(options: argparse.Namespace) -> int:
    """Run the command that is the function of its module's name."""
    status: int = getattr(_module(options.command), options.command)(options)
    return status


def _module(command: str) -> Any:
    return import_module(f".{command}", __package__)


RUN = {
    "chat": chat,
    "run": run,
    "check": check,
    **dict.fromkeys(("bench", "serve"), _filled),
    **dict.fromkeys(("config", "models", "history"), _call),
}


def _silence(*streams: Any) -> None:
    """Point streams at nowhere, so that the flush at exit does not fail again."""
    for stream in streams:
        if stream is not None:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_descriptors() -> None:
    """Open descriptors 0 to 2: MLX takes a file with descriptor 0 for one it could not open."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
