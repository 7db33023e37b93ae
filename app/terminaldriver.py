"""The terminal's input: pastes that stay pastes, and Alt+Enter."""

from __future__ import annotations

from collections.abc import Iterable

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
