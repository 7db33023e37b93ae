"""Tables of text: the one writer for every command's columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..plaintext import one_line

DASH = "-"
"""Stands where there is no value."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells: text already, each a single harmless line.

    A table without ``columns`` has no line of headings, and its Markdown has empty ones.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int | None = 1
    """How many columns are aligned left, the others right; None: all."""
    worded: bool = False
    """Whether the last column is words, and aligned left too."""
    indent: int = 2

    def text(self) -> str:
        """For a terminal; columns without any value are left out."""
        kept = [at for at in range(self._width()) if self._kept(at)]
        lines = [[row[at] for at in kept] for row in (self.columns, *self.rows) if row]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        made = [self.title] if self.title else []
        for line in lines:
            cells = [
                f"{cell:<{width}}" if self._left(at) else f"{cell:>{width}}"
                for at, cell, width in zip(kept, line, widths, strict=True)
            ]
            made.append((" " * self.indent + "  ".join(cells)).rstrip())
        return "".join(f"{line}\n" for line in made)

    def markdown(self) -> str:
        width = range(self._width())
        rule = ["---" if self._left(at) else "---:" for at in width]
        lines = [self.columns or [""] * len(width), rule, *self.rows]
        table = "".join(f"| {' | '.join(map(_escaped, line))} |\n" for line in lines)
        return f"**{_escaped(self.title)}**\n\n{table}" if self.title else table

    def _width(self) -> int:
        return max(map(len, (self.columns, *self.rows)))

    def _left(self, at: int) -> bool:
        worded = self.worded and at == self._width() - 1
        return worded or self.left is None or at < self.left

    def _kept(self, at: int) -> bool:
        """Whether a column is shown: always, but for one of numbers without any value."""
        fixed = not self.columns or self.left is None or at < self.left
        return fixed or any(row[at] not in (DASH, "") for row in self.rows)


def number(value: float | None, form: str) -> str:
    """A value by its format, or a dash where there is none."""
    return DASH if value is None else form.format(value)


def _escaped(text: str) -> str:
    return one_line(text).replace("|", "\\|")
