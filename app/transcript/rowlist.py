"""Entries one under another, of which only what is near the screen is drawn."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from time import perf_counter
from typing import NamedTuple

from rich.style import Style

from .rows import NEW_LINE, Row
from .source import Source
from .styles import PARTS, Styles
from .turn import Entry, Look, Part


class Place(NamedTuple):
    """A row that stays where it is while others change."""

    entry: Entry
    part: int
    """Its number, from the end where it is negative."""
    row: int
    """Within the part."""
    source: Source | None
    """The text that it shows, and where in it: parts may be cut in another way."""
    at: float


class RowList:
    """All rows, by their number from the top; the heights of what was not drawn are guesses."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.look = Look(Styles(Style.null(), dict.fromkeys(PARTS, Style.null())), 80)
        self._ends: list[int] | None = None
        self._drawn: dict[Part, None] = {}

    def measure(self) -> None:
        """Heights have changed."""
        self._ends = None

    @property
    def ends(self) -> list[int]:
        """Where each entry ends."""
        if self._ends is None:
            width = self.look.width
            self._ends = list(accumulate(entry.height(width) for entry in self.entries))
        return self._ends

    def __len__(self) -> int:
        return self.ends[-1] if self.entries else 0

    def start(self, index: int) -> int:
        """The first row of an entry."""
        return self.ends[index - 1] if index else 0

    def at(self, y: int) -> tuple[int, int]:
        """The entry that a row belongs to, and the row's place in it."""
        index = min(bisect_right(self.ends, y), len(self.entries) - 1)
        return index, y - self.start(index)

    def part(self, y: int) -> tuple[Entry, Part, int] | None:
        """The part that a row belongs to, and the row's place in it."""
        if not 0 <= y < len(self):
            return None
        index, inside = self.at(y)
        entry = self.entries[index]
        if not entry.parts:
            return None
        number, line = entry.place(inside)
        return entry, entry.parts[number], line

    def row(self, y: int) -> tuple[Entry, Row] | None:
        """A row; None where there is none, or it is not drawn yet."""
        if (found := self.part(y)) is None:
            return None
        entry, part, line = found
        if part.rows is None or line >= len(part.rows):
            return None
        self._drawn[part] = self._drawn.pop(part, None)
        return entry, part.rows[line]

    def line(self, y: int) -> tuple[int, int]:
        """The first and the last row of what was one line before rows were broken."""
        first = last = y
        while (above := self.row(first - 1)) is not None and above[1].join != NEW_LINE:
            first -= 1
        while (here := self.row(last)) is not None and here[1].join != NEW_LINE:
            last += 1
        return first, last

    def draw(self, first: int, last: int, until: float) -> bool:
        """Draws what is not drawn yet of these rows, the lowest first. Whether that was anything.

        Args:
            until: the moment at which to stop, after one part at least.
        """
        drew = False
        last = min(last, len(self))
        index = self.at(last - 1)[0] if last > first else -1
        while index >= 0 and self.ends[index] > first:
            start, entry = self.start(index), self.entries[index]
            if not entry.parts:
                entry.arrange(self.look)
                self._ends = None
                last, drew = min(last, len(self)), True
                continue
            low = entry.place(max(first - start, 0))[0]
            high = entry.place(max(min(last, self.ends[index]) - 1 - start, 0))[0]
            for part in reversed(entry.parts[low : high + 1]):
                if part.rows is None:
                    self._draw(entry, part)
                    drew = True
                    if perf_counter() > until:
                        return True
            index -= 1
        return drew

    def _draw(self, entry: Entry, part: Part) -> None:
        before = part.height
        part.drawn()
        self._drawn[part] = None
        if part.height != before:
            entry.measure()
            self._ends = None

    def trim(self, kept: int) -> None:
        """Lets go of the rows that were not looked at for longest."""
        while len(self._drawn) > kept:
            part = next(iter(self._drawn))
            del self._drawn[part]
            part.rows = None

    def forget(self, look: Look) -> None:
        """Everything is to be drawn anew, in another look."""
        self.look = look
        for entry in self.entries:
            entry.forget()
        self._drawn.clear()
        self._ends = None

    # -- keeping the place ----------------------------------------------------------------------

    def place(self, y: int) -> Place | None:
        """What stands in a row."""
        if not self.entries:
            return None
        index, inside = self.at(y)
        entry = self.entries[index]
        if not entry.parts:
            return Place(entry, 0, 0, None, 0)
        number, row = entry.place(inside)
        part = entry.parts[number]
        if part.block is not None:
            reach = part.block.stop - part.block.start
            at = part.block.start + reach * row / max(part.height, 1)
            return Place(entry, number, row, part.source, at)
        return Place(entry, number if number < 2 else number - len(entry.parts), row, None, 0)

    def find(self, place: Place) -> int:
        """The row in which something stands now."""
        entry, number, row = place.entry, place.part, place.row
        if entry not in self.entries:
            return 0
        if not entry.parts:
            entry.arrange(self.look)
            self._ends = None
        parts = entry.parts
        if place.source is not None:
            for index, part in enumerate(parts):
                block = part.block
                if part.source is place.source and block and block.start <= place.at < block.stop:
                    if part.rows is None:
                        self._draw(entry, part)
                    reach = block.stop - block.start
                    number, row = index, round(part.height * (place.at - block.start) / reach)
                    break
        number = min(number % len(parts) if number < 0 else number, len(parts) - 1)
        start = self.start(self.entries.index(entry)) + (entry.ends[number - 1] if number else 0)
        return start + min(row, max(parts[number].height - 1, 0))
