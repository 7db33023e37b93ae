"""A text that is edited as it is and shown as a terminal may see it."""

from __future__ import annotations

from typing import overload

from textual.document._document import Document, EditResult, Location

from macspec.plaintext import NEUTRAL, SURROGATES

SHOWN = {
    code: "␍" if code == 0x0D else shown or "\N{REPLACEMENT CHARACTER}"
    for code, shown in {**NEUTRAL, **SURROGATES}.items()
}
"""One sign for each control character, so that columns stay what they are."""


class NeutralDocument(Document):
    """Lines end at a newline and nowhere else, so that every other character is kept.

    The lines that are given out to be wrapped and drawn have control characters replaced, one for
    one; ``text`` and what an edit has replaced have them.
    """

    def __init__(self, text: str) -> None:
        self._newline = "\n"
        self._lines = text.split("\n")
        self._shown = [_neutral(line) for line in self._lines]

    @property
    def lines(self) -> list[str]:
        return self._shown

    def replace_range(self, start: Location, end: Location, text: str) -> EditResult:
        (top, left), (bottom, right) = sorted((start, end))
        replaced = self.get_text_range((top, left), (bottom, right))
        lines = self._lines
        before = lines[top][:left] if top < len(lines) else ""
        after = lines[bottom][right:] if bottom < len(lines) else ""
        new = (before + text).split("\n")
        end_location = (top + len(new) - 1, len(new[-1]))
        new[-1] += after
        lines[top : bottom + 1] = new
        self._shown[top : bottom + 1] = [_neutral(line) for line in new]
        return EditResult(end_location, replaced)

    @overload
    def __getitem__(self, line_index: int) -> str: ...

    @overload
    def __getitem__(self, line_index: slice) -> list[str]: ...

    def __getitem__(self, line_index: int | slice) -> str | list[str]:
        return self._shown[line_index]


def _neutral(line: str) -> str:
    return line if line.isprintable() else line.translate(SHOWN)
