"""Long pastes stand in the prompt as one short name each, and are whole again when it is sent."""

from __future__ import annotations

import re

from macspec.plaintext import one_line

from .files import BLOCK

LONG_CHARACTERS = 1000
LONG_LINES = 8
"""A paste beyond either is folded."""

UNWIELDY = 20_000
"""Characters of a text that is too long to be edited in a few lines."""

NAME = re.compile(r"\[[^\[\]\n]+ [0-9,]+ (?:lines|characters) #[0-9]+\]")


BRACKETS = re.compile(r"[\[\]]")


def is_long(text: str) -> bool:
    """Whether a paste is folded."""
    return len(text) > LONG_CHARACTERS or _lines(text) > LONG_LINES


class Pastes:
    """The pastes of a session by their names.

    Names are only ever taken for pastes in the prompt's own text; everywhere else, and so in
    history and on disk, texts are whole.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._last = 0

    def fold(self, text: str, what: str = "pasted") -> str:
        """The name that stands for ``text``: such as ``[pasted 42 lines #1]``.

        Args:
            what: the first word of it, of one line.
        """
        for name, known in self._texts.items():
            if known == text:
                return name
        name = self._new_name(text, what)
        self._texts[name] = text
        return name

    def expand(self, shown: str) -> str:
        """The prompt's text with every paste whole."""
        return NAME.sub(lambda match: self._texts.get(match[0], match[0]), shown)

    def folded(self, text: str) -> str:
        """A whole text with known pastes and long files folded, so that ``expand`` gives it back.

        What is still too long to be edited in a few lines is folded as a whole.
        """
        for match in BLOCK.finditer(text):
            if is_long(match[0]):
                self.fold(match[0], one_line(match[1]))
        self._retire(text)
        parts: list[tuple[str, bool]] = [(text, False)]
        for name, known in sorted(self._texts.items(), key=lambda item: -len(item[1])):
            if known in text:
                parts = [piece for part in parts for piece in _split(part, known, name)]
        shown = "".join(part for part, _ in parts)
        return shown if len(shown) <= UNWIELDY else self.fold(text)

    def places(self, line: str) -> list[tuple[int, int]]:
        """Where names stand in a line of the prompt, each as (start, end)."""
        return [match.span() for match in NAME.finditer(line) if match[0] in self._texts]

    def _retire(self, text: str) -> None:
        """Rename pastes whose name a text has by accident, so that there it stays what it is."""
        for match in NAME.finditer(text):
            known = self._texts.pop(match[0], None)
            if known is not None:
                what = match[0][1:].rsplit(" ", 3)[0]
                name = self._new_name(known, what)
                while name in text:
                    name = self._new_name(known, what)
                self._texts[name] = known

    def _new_name(self, text: str, what: str) -> str:
        self._last += 1
        lines = _lines(text)
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        return f"[{BRACKETS.sub('', what) or 'pasted'} {size} #{self._last}]"


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _split(part: tuple[str, bool], known: str, name: str) -> list[tuple[str, bool]]:
    text, folded = part
    if folded:
        return [part]
    first, *rest = text.split(known)
    return [(first, False), *(piece for after in rest for piece in ((name, True), (after, False)))]
