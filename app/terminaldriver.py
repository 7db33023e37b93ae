"""The terminal's input, with pastes that stay pastes."""

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


class PasteParser(XTermParser):
    """Textual's parser, which takes an escape character within a paste for the start of a key.

    What follows it would then be pressed as keys, Enter among them, by whoever wrote the text.
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
        """``data`` in which only markers have escape characters while something is pasted."""
        safe: list[str] = []
        for character in data:
            self._seen += character
            if not self._pasting:
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
        vars(linux_driver)["XTermParser"] = PasteParser  # The name that the method looks up.
        super().run_input_thread()
