"""The terminal that the screen is drawn on, and what to do when it is gone or does not read."""

from __future__ import annotations

import sys
import termios
from contextlib import suppress
from typing import Any, TextIO

from .terminaldriver import TerminalDriver


class Output:
    """Standard output, to which writing never fails: a terminal that is gone swallows all."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return True


class ScreenDriver(TerminalDriver):
    """Draws on standard output, so that standard error may go to a file."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        assert sys.__stdout__ is not None
        self._file: Any = Output(sys.__stdout__)
        self._missed = False

    def write(self, data: str) -> None:
        """Textual's own waits for a terminal that does not read, and everything else with it: what
        has no room in its queue is left out here, until the screen is drawn anew."""
        writer = self._writer_thread
        if writer is not None and writer._queue.full():
            self._missed = True
        else:
            super().write(data)

    def caught_up(self) -> bool:
        """Whether the terminal has missed something and reads again; once."""
        writer = self._writer_thread
        if not self._missed or writer is None or not writer._queue.empty():
            return False
        self._missed = False
        return True

    @property
    def gone(self) -> bool:
        """Whether the terminal has been closed."""
        try:
            termios.tcgetattr(self.fileno)
        except termios.error:
            return True
        return False

    def let_go(self) -> None:
        """Give the terminal back as far as can be done at once, from any thread."""
        with suppress(termios.error):
            if self.attrs_before is not None:
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
