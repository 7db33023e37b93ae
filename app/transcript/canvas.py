"""A list of rows of which only those near the screen are drawn, and the widget that shows it."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from math import inf
from time import perf_counter
from typing import Any, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Offset, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from .rows import NEW_LINE, PARTS, Look, Row, Styles
from .source import Source
from .turn import Entry, Part

# -- the rows -----------------------------------------------------------------------------------


class Place(NamedTuple):
    """A row that keeps its position on screen while others change."""

    entry: Entry
    part: int
    """Its index; negative: from the end."""
    row: int
    source: Source | None
    """The text that it shows, and where in it: the parts may be cut differently later."""
    at: float


class RowList:
    """All rows, numbered from the top; where nothing is drawn yet, heights are guesses."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.look = Look(Styles(Style.null(), dict.fromkeys(PARTS, Style.null())), 80)
        self._ends: list[int] | None = None
        self._drawn: dict[Part, None] = {}

    def measure(self) -> None:
        """Heights changed."""
        self._ends = None

    @property
    def ends(self) -> list[int]:
        if self._ends is None:
            width = self.look.width
            self._ends = list(accumulate(entry.height(width) for entry in self.entries))
        return self._ends

    def __len__(self) -> int:
        return self.ends[-1] if self.entries else 0

    def start(self, index: int) -> int:
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
        """A row; None if there is none or it is not drawn yet."""
        if (found := self.part(y)) is None:
            return None
        entry, part, line = found
        if part.rows is None or line >= len(part.rows):
            return None
        self._drawn[part] = self._drawn.pop(part, None)
        return entry, part.rows[line]

    def line(self, y: int) -> tuple[int, int]:
        """The first and last row of what was one line before it was wrapped."""
        first = last = y
        while (above := self.row(first - 1)) is not None and above[1].join != NEW_LINE:
            first -= 1
        while (here := self.row(last)) is not None and here[1].join != NEW_LINE:
            last += 1
        return first, last

    def draw(self, first: int, last: int, until: float) -> bool:
        """Draws those of these rows that are not drawn yet, the lowest first, and returns whether
        there were any. It stops at a time, ``until``, after one part at least."""
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
        """Forgets the rows that have gone unseen the longest."""
        while len(self._drawn) > kept:
            part = next(iter(self._drawn))
            del self._drawn[part]
            part.rows = None

    def forget(self, look: Look) -> None:
        """Everything has to be drawn again, in another look."""
        self.look = look
        for entry in self.entries:
            entry.forget()
        self._drawn.clear()
        self._ends = None

    # -- keeping the place ----------------------------------------------------------------------

    def place(self, y: int) -> Place | None:
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
        """The row that shows it now."""
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


# -- the widget ---------------------------------------------------------------------------------

GUTTER = 2
"""Columns to the left of the text."""

KEPT = 2_000
"""Parts that stay drawn."""

SETTLE_S = 0.03
"""After this long a screen is shown as far as it is drawn; the rest follows at once."""

AHEAD_S = 0.008
"""Longest step of drawing what is just off the screen; a pause follows each."""

PAUSE_S = 0.02


def word(text: str, at: int) -> tuple[int, int]:
    """Start and end of the word at a character; runs of blanks count as words."""
    for found in re.finditer(r"\w+|\s+|[^\w\s]+", text):
        if found.start() <= at < found.end():
            return found.span()
    return at, at


class Canvas(ScrollView):
    """Stays where the user scrolled to, or follows the end."""

    FOCUS_ON_CLICK = False

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.following = True
        """New rows at the end scroll into view."""
        self.list = RowList()
        self._settling = False
        self._ahead_waits = False
        self._gutters: dict[str, Strip] = {}

    # -- what is on the screen ------------------------------------------------------------------

    def set_look(self, look: Look) -> None:
        if self.size and look != self.list.look:
            place = None if self.following else self.list.place(self.scroll_offset.y)
            self.list.forget(look)
            self._gutters.clear()
            self.changed(place)

    def changed(self, place: Place | None = None) -> None:
        """Entries changed; ``place`` stays at the top of the screen (None: what is there now)."""
        if not self.size:
            return
        before = self.scroll_offset.y
        if place is None and not self.following:
            place = self.list.place(before)
        self.list.measure()
        self._settle(before, place)

    def _settle(self, top: int, place: Place | None) -> None:
        height, rows = self.size.height, self.list
        until = perf_counter() + SETTLE_S
        while True:
            if self.following:
                top = max(len(rows) - height, 0)
            else:
                top = rows.find(place) if place else top
                top = min(top, max(len(rows) - height, 0))
                place = place or rows.place(top)
            if not rows.draw(top, top + height, until) or perf_counter() > until:
                break
        self._scroll(top)
        self.refresh()
        if not self._ahead_waits:
            self._ahead_waits = True
            self.set_timer(PAUSE_S, self._ahead)

    def _scroll(self, top: int) -> None:
        size = Size(self.scrollable_content_region.width, len(self.list))
        self._settling = True
        if size != self.virtual_size:
            # Set directly: the reactive would lay out the whole screen for every new row.
            self.set_reactive(Widget.virtual_size, size)
            self._scroll_update(size)
        self.scroll_y = self.scroll_target_y = top
        self._settling = False

    def _ahead(self) -> None:
        """Draws the rest of the screen, then a screen above and below, in small steps."""
        self._ahead_waits = False
        top, height, rows = self.scroll_offset.y, self.size.height, self.list
        if not height or not rows.entries:
            return
        place = rows.place(top)
        now = perf_counter()
        if rows.draw(top, top + height, now + SETTLE_S) or rows.draw(
            max(top - height, 0), top + 2 * height, now + AHEAD_S
        ):
            self._settle(top, place)
        rows.trim(KEPT)

    # -- Textual --------------------------------------------------------------------------------

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._settling and round(old_value) != round(new_value):
            self.following = round(new_value) >= self.max_scroll_y
            self.changed()

    def scroll_to(self, *args: Any, **options: Any) -> None:
        # Heights become known while scrolling, so there is no fixed distance to animate.
        super().scroll_to(*args, **{**options, "animate": False})

    def render_line(self, y: int) -> Strip:
        y += self.scroll_offset.y
        width, base = self.scrollable_content_region.width, self.list.look.styles.base
        found = self.list.row(y)
        if found is None:
            return Strip.blank(width, base)
        entry, row = found
        gutter = self._beside(*(("", "user") if row.bare else entry.gutter))
        if row.painted is None or row.painted[:2] != (y, width) or row.painted[2] is not gutter:
            strip = Strip.join([gutter, row.strip]).crop_extend(0, width, base)
            row.painted = (y, width, gutter, strip.apply_offsets(0, y))
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(y)) is not None:
            # The offsets of a divided strip are no longer valid.
            full = GUTTER + len(row.strip.text)
            return self._selected(row.painted[3], full, *span).apply_offsets(0, y)
        return row.painted[3]

    def _beside(self, sign: str, part: str) -> Strip:
        if (strip := self._gutters.get(sign)) is None:
            style = self.list.look.styles.base + self.list.look.styles[part]
            strip = self._gutters[sign] = Strip([Segment(sign.ljust(GUTTER), style)])
        return strip

    # -- selection ------------------------------------------------------------------------------

    def _selected(self, strip: Strip, full: int, start: int, end: int) -> Strip:
        style = self.screen.get_component_rich_style("screen--selection")
        first = strip.index_to_cell_position(start)
        last = strip.index_to_cell_position(end if end >= 0 else full)
        parts = strip.divide([first, max(first, last), strip.cell_length])
        chosen = Strip(list(Segment.apply_style(parts[1], post_style=style)))
        return Strip.join([parts[0], chosen, *parts[2:]])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        first = selection.start.y if selection.start else 0
        last = min(selection.end.y if selection.end else len(self.list), len(self.list) - 1)
        self.list.draw(first, last + 1, inf)
        text, join = [], ""
        for y in range(first, last + 1):
            found, span = self.list.row(y), selection.get_span(y)
            if found is None or span is None or found[1].ornament:
                continue
            start, end = (max(place - GUTTER, 0) if place >= 0 else None for place in span)
            row = found[1]
            text += [join, row.strip.text[:end].rstrip()[max(start or 0, row.lead) :]]
            join = row.join
        return "".join(text), NEW_LINE

    def on_click(self, event: events.Click) -> None:
        """Two clicks select a word, three an unwrapped line, four the whole turn."""
        _, offset = self.screen.get_widget_and_offset_at(event.screen_x, event.screen_y)
        if event.chain < 2 or offset is None or (found := self.list.row(offset.y)) is None:
            return
        event.prevent_default()
        first = last = offset.y
        start, end = 0, None
        if event.chain == 2:
            start, end = word(found[1].strip.text, max(offset.x - GUTTER, 0))
        elif event.chain == 3:
            first, last = self.list.line(offset.y)
        else:
            index, _ = self.list.at(offset.y)
            first, last = self.list.start(index), self.list.ends[index] - 1
        stop = Offset(GUTTER + end, last) if end is not None else Offset(0, last + 1)
        self.screen.selections = {self: Selection(Offset(GUTTER + start, first), stop)}

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()
