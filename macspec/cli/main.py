"""The command line: which command runs, and how errors and interrupts end it.

Nothing here imports MLX: help and version answer at once. A command's module is imported when
it runs.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..errors import BadOptionError, MacspecError
from ..terminal import complain, leave_on_interrupt, status_of
from .arguments import build_parser

BROKEN_PIPE = 141
"""Exit status where the reader of the output went away, as a shell reports SIGPIPE."""

OF_MACSPEC = ("-h", "--help", "--version")
"""Options that need no command; with others before a command, chat is meant."""

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments after the program's name; None takes the process's own.

    Returns:
        The exit status: 0 done, 1 a check failed, 2 an error in one line, 130 interrupted,
        141 the reader of the output went away.
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
    except Exception as error:
        if _debugging():
            raise
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            _silence(sys.stdout)
        complain(_explain(error))
        return 2


def _explain(error: Exception) -> str:
    if isinstance(error, MacspecError):
        return str(error)
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return f"cannot write the output: {error.strerror}"
    return (
        f"unexpected {type(error).__name__}: {error} (a bug in macspec: please report it with "
        "what MACSPEC_DEBUG=1 shows and the output of macspec check)"
    )


def _debugging() -> bool:
    return os.environ.get("MACSPEC_DEBUG", "0") not in ("", "0")


def _run(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in OF_MACSPEC):
        arguments.insert(0, "chat")
    try:
        options = build_parser().parse_args(arguments)
    except SystemExit as leaving:
        return int(leaving.code or 0)
    if options.command == "chat" and not options.keys:
        from ..app.start import recall

        recall(options)
    if options.command == "run":
        from .saving import Conversation

        if options.raw and options.chat is not None:
            raise BadOptionError("--raw uses no chat template: leave --continue and --chat out")
        options.conversation = Conversation(options)
    if hasattr(options, "trust_remote_code") and not getattr(options, "report", False):
        from ..config.options import fill

        options.effective = fill(options)
        options.settings = options.effective.config
    return COMMANDS[options.command](options)


def chat(options: argparse.Namespace) -> int:
    from ..app.start import chat, list_keys

    if options.keys:
        list_keys(options)
        return 0
    from .prompt import decoded

    options.system = decoded(options.system or "")
    status: int = chat(options)
    return status


def run(options: argparse.Namespace) -> int:
    from .prompt import decoded, read_prompt

    if options.raw and (options.system or options.think):
        raise BadOptionError("--raw uses no chat template: leave --system and --think out")
    options.prompt = read_prompt(options.prompt)
    options.system = decoded(options.system or "")
    options.stop = [decoded(text) for text in options.stop]
    from .run import run

    return run(options)


def check(options: argparse.Namespace) -> int:
    if options.report:
        from .report import report

        return report(target=options.target, draft=options.draft)
    from .check import check

    return check(options)


def bench(options: argparse.Namespace) -> int:
    from .bench import bench

    return bench(options)


def config(options: argparse.Namespace) -> int:
    from .config import config

    return config(options)


def models(options: argparse.Namespace) -> int:
    from .models import models

    return models(options)


def history(options: argparse.Namespace) -> int:
    from .history import history

    return history(options)


COMMANDS = {
    "chat": chat,
    "run": run,
    "check": check,
    "bench": bench,
    "config": config,
    "models": models,
    "history": history,
}


def _silence(*streams: Any) -> None:
    """Point streams at nowhere, so that the flush at exit does not fail once more."""
    for stream in streams:
        if stream is not None:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_descriptors() -> None:
    """Let no file of a model become descriptor 0, which MLX takes for a failure to open it."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
