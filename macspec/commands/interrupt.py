"""Ctrl-C: at once and quiet while things load, in order while a reply streams."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

INTERRUPTED = 130
"""Exit status after Ctrl-C."""


def leave_on_interrupt() -> None:
    """Make Ctrl-C end the process without a word.

    KeyboardInterrupt would not do: raised inside an extension module's import it can come out as
    another error. Where the shell has told the process to ignore the signal, it stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let the first Ctrl-C raise KeyboardInterrupt; one after it acts as it did before."""
    before = signal.getsignal(signal.SIGINT)

    def raise_once(signum: int, frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        raise KeyboardInterrupt

    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, raise_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(signum: int, frame: object) -> NoReturn:
    os._exit(INTERRUPTED)
