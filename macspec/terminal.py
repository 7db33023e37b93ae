"""The terminal: where a program writes, what it says, and how Ctrl-C ends it.

Text or JSON lines go to standard output, everything else to standard error. Ctrl-C ends a program
at once and quietly while things load, and in order while a reply streams; then SIGTERM and a
closed window count as Ctrl-C does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from .errors import MacspecError
from .plaintext import neutral, one_line, utf8

INTERRUPTED = 130
"""Exit status after Ctrl-C."""

REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a program to leave."""


class Output:
    """Standard output in UTF-8: neutral text on a terminal, exact bytes everywhere else."""

    def __init__(self) -> None:
        if sys.stdout is None:
            raise MacspecError("standard output is closed")
        self.stream = sys.stdout.buffer
        self.terminal = sys.stdout.isatty()
        self._column = 0
        self.writing = False
        """Whether the one who reads is waited for."""

    def text(self, delta: str) -> None:
        """The next piece of a reply, cut anywhere."""
        if delta:
            self._column = 0 if delta.endswith("\n") else 1
            self._write(utf8(neutral(delta) if self.terminal else delta))

    def end(self) -> None:
        """The reply is over: a terminal's next line starts at the left."""
        if self.terminal and self._column:
            self._column = 0
            self._write(b"\n")

    def json(self, record: Mapping[str, Any]) -> None:
        """One JSON object on a line, in ASCII."""
        line = json.dumps(record).replace("\x7f", "\\u007f")
        self._write(line.encode() + b"\n")

    def _write(self, data: bytes) -> None:
        self.writing = True
        try:
            self.stream.write(data)
            self.stream.flush()
        finally:
            self.writing = False

    def give_up(self) -> None:
        """Nobody reads: what was not taken yet goes nowhere, and no longer holds up the end."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.stream.fileno())
        os.close(nowhere)


def say(message: str) -> None:
    """One line for the user, on standard error."""
    if sys.stderr is not None:
        print(f"macspec: {one_line(message)}", file=sys.stderr, flush=True)


def show(table: str) -> None:
    """A block of lines for the user, on standard error."""
    if sys.stderr is not None:
        print(table, file=sys.stderr, flush=True)


def complain(message: str) -> None:
    """An error, as one line on standard error."""
    if sys.stderr is not None:
        print(f"macspec: error: {one_line(message)}", file=sys.stderr)


def leave_on_interrupt() -> None:
    """Make Ctrl-C end the process without a word.

    KeyboardInterrupt would not do: raised inside an extension module's import it can come out as
    another error. Where the shell has told the process to ignore the signal, it stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


class Asked(KeyboardInterrupt):
    """The process was asked to leave."""

    def __init__(self, signum: int) -> None:
        super().__init__()
        self.status = 128 + signum
        """As a shell reports it."""


def status_of(interrupt: KeyboardInterrupt) -> int:
    """The exit status after an interrupt."""
    return interrupt.status if isinstance(interrupt, Asked) else INTERRUPTED


@contextmanager
def interruptible() -> Iterator[None]:
    """Let the first request to leave raise ``Asked``; one after it acts as it did before."""
    before = {signum: signal.getsignal(signum) for signum in REQUESTS}

    def restore() -> None:
        for signum, handler in before.items():
            signal.signal(signum, handler)

    def raise_once(signum: int, frame: object) -> None:
        restore()
        raise Asked(signum)

    for signum, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(signum, raise_once)
    try:
        yield
    finally:
        restore()


def _leave(signum: int, frame: object) -> NoReturn:
    os._exit(INTERRUPTED)
