"""The terminal: what a program reads, writes and says there, and how Ctrl-C ends it.

Text or JSON lines go to standard output, everything else to standard error. While a reply streams,
Ctrl-C, SIGTERM and a closed window end a program in order; while things load, Ctrl-C does at once.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from .errors import BadOptionError, MacspecError
from .plaintext import neutral, one_line, utf8

INTERRUPTED = 130
"""Exit status after Ctrl-C."""

PATIENCE = 2.0
"""Seconds of silence on standard input before the user is told what is being waited for."""

STEP = 0.1
"""Progress between two lines, where no line can be redrawn."""

REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a program to leave."""

supervisor: int | None = None
"""The process that ends this one if it does not say at once that it obeys such a signal."""


class Output:
    """Standard output in UTF-8: neutral text on a terminal, exact bytes everywhere else."""

    def __init__(self) -> None:
        if sys.stdout is None:
            raise MacspecError("standard output is closed")
        self.stream = sys.stdout.buffer
        self.terminal = sys.stdout.isatty()
        self._column = 0
        self.writing = False
        """Whether a write is waiting for the reader."""

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None: it is none."""
        return max(shutil.get_terminal_size().columns - 1, 20) if self.terminal else None

    def text(self, delta: str) -> None:
        if delta:
            self._column = 0 if delta.endswith("\n") else 1
            self._write(utf8(neutral(delta) if self.terminal else delta))

    def end(self) -> None:
        """On a terminal, end the line that was begun."""
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
        """Nobody reads: drop what was not written yet, so that it does not hold up the exit."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.stream.fileno())
        os.close(nowhere)


def say(message: str) -> None:
    """One line for the user, on standard error."""
    show(f"macspec: {one_line(message)}")


def show(table: str) -> None:
    """A block of lines for the user, on standard error."""
    if sys.stderr is not None:
        print(table, file=sys.stderr, flush=True)


def complain(message: str) -> None:
    """An error, as one line on standard error."""
    say(f"error: {message}")


class ProgressLine:
    """A line on standard error that is redrawn on a terminal; elsewhere, a new one now and then."""

    def __init__(self) -> None:
        self._redraws = sys.stderr is not None and sys.stderr.isatty()
        self._shown: dict[str, float] = {}
        self._open = False

    def show(self, line: Callable[[int], str], share: float, what: str = "") -> None:
        """Show how far something is.

        Args:
            line: text of at most so many characters.
            share: 0 to 1.
            what: distinguishes things shown in turn.
        """
        if self._redraws:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{line(width):<{width}}", end="", file=sys.stderr, flush=True)
            self._open = True
        elif share - self._shown.get(what, 0.0) >= STEP:
            self._shown[what] = share
            say(line(200))

    def end(self, *, keep: bool = True) -> None:
        """Leave the line, or remove it."""
        if self._open:
            width = shutil.get_terminal_size().columns - 1
            print("\n" if keep else f"\r{'':<{width}}\r", end="", file=sys.stderr, flush=True)
            self._open = False


def decoded(argument: str) -> str:
    """A text of the command line as UTF-8, whatever the locale; a BadOptionError if it is not."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        try:
            return os.fsencode(argument).decode()
        except UnicodeError:
            raise BadOptionError("the text on the command line is not UTF-8") from None
    return argument


def read_prompt(argument: str | None) -> str:
    """The whole prompt: the argument, an empty line, then what was piped in less its last newline.

    Raises:
        BadOptionError: the prompt is empty, or not UTF-8.
    """
    parts = [decoded(argument or ""), _piped(waiting=argument is not None)]
    prompt = "\n\n".join(part for part in parts if part)
    if not prompt.strip():
        raise BadOptionError("the prompt is empty; give one as an argument or on standard input")
    return prompt


def _piped(waiting: bool) -> str:
    """Standard input unless it is a terminal; ``waiting``: there is a prompt without it."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    if waiting:
        _say_if_silent()
    raw = sys.stdin.buffer.read()
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise BadOptionError(
            f"standard input is not UTF-8: byte 0x{raw[error.start]:02x} at position "
            f"{error.start}; convert it first, for example with iconv"
        ) from None
    return text.removesuffix("\n").removesuffix("\r")


def _say_if_silent() -> None:
    try:
        ready, _, _ = select.select([sys.stdin], [], [], PATIENCE)
    except (OSError, ValueError):
        return
    if not ready:
        say("reading standard input until it ends; add </dev/null to use only the argument")


def leave_on_interrupt() -> None:
    """Make Ctrl-C end the process silently, unless the shell made the process ignore it.

    KeyboardInterrupt, raised inside an extension module's import, can come out as another error.
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
    return interrupt.status if isinstance(interrupt, Asked) else INTERRUPTED


@contextmanager
def interruptible() -> Iterator[None]:
    """Make the first request to leave raise ``Asked``; the next one acts as before."""
    before = {signum: signal.getsignal(signum) for signum in REQUESTS}

    def restore() -> None:
        for signum, handler in before.items():
            signal.signal(signum, handler)

    def raise_once(signum: int, frame: object) -> None:
        if supervisor is not None:  # First: it may be about to repeat the request.
            os.kill(supervisor, signal.SIGUSR1)
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
