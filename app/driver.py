"""The terminal that the screen is drawn on: its input, and what to do when it is gone or stuck."""

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
"""Code points that no text has, since Unicode keeps them for a program's own use."""

BACK = {ord(stand_in): chr(code) for code, stand_in in STAND_INS.items()}


ALT_ENTER = "\x1b[13;3u"
"""As a terminal with the keyboard protocol sends it."""


class SafeParser(XTermParser):
    """Textual's parser, which takes an escape character within a paste for the start of a key.

    What follows it would then be pressed as keys, Enter among them, by whoever wrote the text.
    And it takes Alt+Enter, as most terminals send it, for Enter.
    """

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._pasting = False
        self._seen = ""
        """The end of the input so far, as far as it may become a marker."""

    def feed(self, data: str) -> Iterable[Message]:
        safe = self._safe(data)
        if data and not safe:
            return  # Nothing at all would mean the end of the input.
        for message in super().feed(safe):
            if isinstance(message, events.Paste):
                message = events.Paste(message.text.translate(BACK))
            yield message

    def _safe(self, data: str) -> str:
        """``data`` in which only markers have escape characters while something is pasted.

        An escape character and a carriage return that come together are one key.
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


class TerminalDriver(linux_driver.LinuxDriver):
    """Textual's driver with that parser."""

    def run_input_thread(self) -> None:
        vars(linux_driver)["XTermParser"] = SafeParser  # The name that the method looks up.
        super().run_input_thread()


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
