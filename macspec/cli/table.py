"""Tables of text: the one writer for every command's columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..plaintext import one_line

DASH = "-"
"""Stands where there is no value."""

GAP = "  "
"""Between two columns."""

WORDS = 30
"""Least columns to wrap words in."""


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

    def text(self, width: int | None = None) -> str:
        """For a terminal so wide; columns without any value are left out. Columns that do not fit
        follow below, beside the first ones again, and words are wrapped."""
        kept = [at for at in range(self._width()) if self._kept(at)]
        lines = [row for row in (self.columns, *self.rows) if row]
        widths = {at: max(len(row[at]) for row in lines) for at in kept}
        made = [self.title] if self.title else []
        for part in self._parts(kept, widths, width):
            for row in lines:
                begin = " " * self.indent
                for at in part[:-1]:
                    begin += self._aligned(row[at], at, widths[at]) + GAP
                made += self._ended(begin, row[part[-1]], part[-1], widths[part[-1]], width)
        return "".join(f"{line}\n" for line in made)

    def _parts(
        self, kept: Sequence[int], widths: Mapping[int, int], width: int | None
    ) -> Iterator[Sequence[int]]:
        """The columns that fit side by side, part by part."""
        first = kept[: self.left] if self.columns and self.left is not None else []
        part = list(first)
        for at in kept[len(first) :]:
            taken = self.indent + sum(widths[it] + len(GAP) for it in part)
            wide = min(widths[at], WORDS) if self._wordy(at) else widths[at]
            if width is not None and taken + wide > width and len(part) > len(first):
                yield part
                part = list(first)
            part.append(at)
        yield part

    def _aligned(self, cell: str, at: int, wide: int) -> str:
        return f"{cell:<{wide}}" if self._left(at) else f"{cell:>{wide}}"

    def _ended(self, begin: str, cell: str, at: int, wide: int, width: int | None) -> list[str]:
        """A line with its last cell, or several if that is words."""
        if width is None or not self._wordy(at):
            return [(begin + self._aligned(cell, at, wide)).rstrip()]
        hanging = " " * len(begin)
        return textwrap.wrap(cell, width, initial_indent=begin, subsequent_indent=hanging)

    def markdown(self) -> str:
        width = range(self._width())
        rule = ["---" if self._left(at) else "---:" for at in width]
        lines = [self.columns or [""] * len(width), rule, *self.rows]
        table = "".join(f"| {' | '.join(map(_escaped, line))} |\n" for line in lines)
        return f"**{_escaped(self.title)}**\n\n{table}" if self.title else table

    def _width(self) -> int:
        return max(map(len, (self.columns, *self.rows)))

    def _left(self, at: int) -> bool:
        return self._wordy(at) or self.left is None or at < self.left

    def _wordy(self, at: int) -> bool:
        return self.worded and at == self._width() - 1

    def _kept(self, at: int) -> bool:
        """Whether a column is shown: always, but for one of numbers without any value."""
        fixed = not self.columns or self.left is None or at < self.left
        return fixed or any(row[at] not in (DASH, "") for row in self.rows)


def number(value: float | None, form: str) -> str:
    """A value by its format, or a dash where there is none."""
    return DASH if value is None else form.format(value)


def _escaped(text: str) -> str:
    return one_line(text).replace("|", "\\|")
