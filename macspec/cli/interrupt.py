"""Ctrl-C: at once and quiet while things load, in order while a reply streams.

While one streams, being asked to end and a closed window count as Ctrl-C does.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

INTERRUPTED = 130
"""Exit status after Ctrl-C."""

REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
