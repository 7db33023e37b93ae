"""Textual's terminal driver, made safe: hostile pastes, and terminals that hang or disappear."""

from __future__ import annotations

import sys
import termios
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TextIO

from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.drivers import linux_driver
from textual.message import Message

ESCAPE = "\x1b"

STAND_INS = {0x1B: "\ufdd0", 0x00: "\ufdd1"}
"""Noncharacters of Unicode, which do not occur in text."""

BACK = {ord(stand_in): chr(code) for code, stand_in in STAND_INS.items()}


ALT_ENTER = "\x1b[13;3u"
"""As sent by a terminal with the keyboard protocol."""


class SafeParser(XTermParser):
    """Textual's parser, with two faults mended.

    It takes an escape character within a paste for the start of a key, so that whoever wrote
    the text could press keys, Enter among them. And it takes Alt+Enter, as most terminals send
    it, for Enter.
    """

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._pasting = False
        self._seen = ""
        """The end of the input so far that may be the start of a marker."""

    def feed(self, data: str) -> Iterable[Message]:
        safe = self._safe(data)
        if data and not safe:
            return  # Nothing at all would mean the end of the input.
        for message in super().feed(safe):
            if isinstance(message, events.Paste):
                message = events.Paste(message.text.translate(BACK))
            yield message

    def _safe(self, data: str) -> str:
        """``data`` with escape characters in pastes replaced, except in the markers around them.

        An escape character followed at once by a carriage return is Alt+Enter.
        """
        safe: list[str] = []
        for character in data:
            self._seen += character
            if not self._pasting:
                if character == "\r" and safe[-1:] == [ESCAPE]:
                    safe[-1] = ALT_ENTER
                else:
                    safe.append(character)
                self._seen = self._seen[-len(BRACKETED_PASTE_START) :]
                if self._seen == BRACKETED_PASTE_START:
                    self._pasting, self._seen = True, ""
            elif self._seen == BRACKETED_PASTE_END:
                safe.append(self._seen)
                self._pasting, self._seen = False, ""
            elif not BRACKETED_PASTE_END.startswith(self._seen):
                text, self._seen = self._seen, ""
                if character == ESCAPE:
                    text, self._seen = text[:-1], ESCAPE
                safe.append(text.translate(STAND_INS))
        return "".join(safe)


class Output:
    """Standard output that ignores errors: the terminal may be gone."""

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


class ScreenDriver(linux_driver.LinuxDriver):
    """Reads with the safe parser, and draws on standard output, so that standard error may go to
    a file."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        assert sys.__stdout__ is not None
        self._file: Any = Output(sys.__stdout__)
        self._missed = False

    def run_input_thread(self) -> None:
        vars(linux_driver)["XTermParser"] = SafeParser  # The name that the method looks up.
        super().run_input_thread()

    def write(self, data: str) -> None:
        """Drop output while a terminal does not read: Textual would block. The screen is redrawn
        later."""
        writer = self._writer_thread
        if writer is not None and writer._queue.full():
            self._missed = True
        else:
            super().write(data)

    def caught_up(self) -> bool:
        """Whether the terminal missed output and reads again; true once."""
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
        """Restore the terminal's mode at once, from any thread."""
        with suppress(termios.error):
            if self.attrs_before is not None:
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
