"""A list of rows of which only those near the screen are drawn, and the widget that shows it."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import accumulate
from math import inf
from sys import maxsize
from time import perf_counter
from typing import Any, NamedTuple

from rich.cells import cell_len
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
    kind: str
    """Of its part."""
    row: int
    source: Source | None
    """The text that it shows, and where in it: the parts may be cut differently later."""
    at: float


class RowList:
    """All rows, numbered from the top; where nothing is drawn yet, heights are guesses."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.look = Look(Styles(Style.null(), dict.fromkeys(PARTS, Style.null())), 80)
        self._measured: tuple[list[tuple[Entry, Part]], list[int]] | None = None
        self._drawn: dict[Part, None] = {}

    def measure(self) -> None:
        """Parts or their heights changed."""
        self._measured = None

    def _parts(self) -> tuple[list[tuple[Entry, Part]], list[int]]:
        """All parts, and the row at which each begins and the last one ends."""
        if self._measured is None:
            width = self.look.width
            parts = [
                (entry, part)
                for entry in self.entries
                for part in entry.parts or [Part(list, entry.guess(width))]
            ]
            rows = accumulate((part.height for _, part in parts), initial=0)
            self._measured = parts, list(rows)
        return self._measured

    def __len__(self) -> int:
        return self._parts()[1][-1]

    def span(self, entry: Entry) -> tuple[int, int]:
        """The first row of an entry, and the one after its last."""
        parts, bounds = self._parts()
        found = [index for index, (each, _) in enumerate(parts) if each is entry]
        return bounds[found[0]], bounds[found[-1] + 1]

    def at(self, y: int) -> tuple[Entry, Part, int] | None:
        """The part that a row belongs to, and the row's place in it."""
        parts, bounds = self._parts()
        if not 0 <= y < bounds[-1]:
            return None
        index = bisect_right(bounds, y) - 1
        return *parts[index], y - bounds[index]

    def row(self, y: int) -> tuple[Entry, Row] | None:
        """A row; None if there is none or it is not drawn yet."""
        if (found := self.at(y)) is None or found[1].rows is None:
            return None
        entry, part, line = found
        self._drawn[part] = self._drawn.pop(part, None)
        return entry, found[1].rows[line]

    def line(self, y: int) -> tuple[int, int]:
        """The first and last row of what was one line before it was wrapped."""
        first = last = y
        while (above := self.row(first - 1)) is not None and above[1].join != NEW_LINE:
            first -= 1
        while (here := self.row(last)) is not None and here[1].join != NEW_LINE:
            last += 1
        return first, last

    def draw(self, first: int, last: int, until: float) -> bool:
        """Draws what is not drawn yet and seems to be in these rows, the lowest first; returns
        whether there was any. It stops at a time, ``until``, after one part at least."""
        parts, bounds = self._parts()
        low, high = max(bisect_right(bounds, first) - 1, 0), bisect_left(bounds, last)
        missing = [found for found in parts[low:high] if found[1].rows is None]
        for entry, part in reversed(missing):
            if entry.parts:
                part.drawn()
                self._drawn[part] = None
            else:
                entry.arrange(self.look)
            if perf_counter() > until:
                break
        if missing:
            self.measure()
        return bool(missing)

    def trim(self, kept: int) -> None:
        """Forgets the rows that have gone unseen the longest."""
        while len(self._drawn) > kept:
            part = next(iter(self._drawn))
            del self._drawn[part]
            part.rows = None

    def forget(self, look: Look) -> None:
        """Everything has to be drawn again in another look, but for what is known in it."""
        old, self.look = self.look, look
        for entry in self.entries:
            entry.relook(old, look)
        self._drawn.clear()
        self.measure()

    # -- keeping the place ----------------------------------------------------------------------

    def place(self, y: int) -> Place | None:
        if (found := self.at(y)) is None:
            return None
        entry, part, row = found
        at = 0.0
        if part.block is not None:
            at = part.block.start + part.block.size * row / part.height
        return Place(entry, part.kind, row, part.source, at)

    def find(self, place: Place) -> int:
        """The row that shows it now."""
        entry, row = place.entry, place.row
        if entry not in self.entries:
            return 0
        if not entry.parts:
            entry.arrange(self.look)
        part = entry.parts[0]
        for each in entry.parts:
            begun = each.kind == place.kind
            if each.block is not None:
                begun = each.block.start <= place.at
            if begun and each.source is place.source:
                part = each
        if part.block is not None:
            self._drawn[part] = None
            part.drawn()
            row = round(part.height * (place.at - part.block.start) / max(part.block.size, 1))
        self.measure()
        parts, bounds = self._parts()
        index = next(index for index, (_, each) in enumerate(parts) if each is part)
        return bounds[index] + max(min(row, part.height - 1), 0)


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
    spans = (found.span() for found in re.finditer(r"\w+|\s+|[^\w\s]+", text))
    return next((span for span in spans if span[0] <= at < span[1]), (at, at))


class Canvas(ScrollView):
    """Stays where the user scrolled to, or follows the end."""

    FOCUS_ON_CLICK = False

    def __init__(self) -> None:
        super().__init__()
        self.following = True
        """New rows at the end scroll into view."""
        self.unseen = False
        """There is new text below what is on screen."""
        self.found: re.Pattern[str] | None = None
        """Words to mark."""
        self.list = RowList()
        self._settling = False
        self._ahead_waits = False

    # -- what is on the screen ------------------------------------------------------------------

    def set_look(self, look: Look) -> None:
        if self.size and look != self.list.look:
            place = self.list.place(self.scroll_offset.y)
            self.list.forget(look)
            self.changed(place)

    def changed(self, place: Place | None = None) -> None:
        """Entries changed; ``place`` stays at the top of the screen (None: what is there now)."""
        self.list.measure()
        if not self.size:
            return
        rows, top, height = self.list, self.scroll_offset.y, self.size.height
        place = place or rows.place(top)
        rows.measure()
        until = perf_counter() + SETTLE_S
        while True:
            last = max(len(rows) - height, 0)
            top = last if self.following else min(rows.find(place) if place else top, last)
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
            self.changed(place)
        rows.trim(KEPT)

    # -- Textual --------------------------------------------------------------------------------

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._settling and round(old_value) != round(new_value):
            self.following = round(new_value) >= self.max_scroll_y
            self.unseen = self.unseen and not self.following
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
        mark = ("", "user") if row.bare else entry.gutter
        if row.painted is None or row.painted[0] != (y, width, mark):
            sign, part = mark
            gutter = Strip([Segment(sign.ljust(GUTTER), base + self.list.look.styles[part])])
            strip = Strip.join([gutter, row.strip]).crop_extend(0, width, base)
            row.painted = (y, width, mark), strip.apply_offsets(0, y)
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(y)) is not None:
            # The offsets of a divided strip are no longer valid.
            start, end = span
            end = end if end >= 0 else GUTTER + len(row.strip.text)
            return self._selected(row.painted[1], start, end).apply_offsets(0, y)
        if self.found is not None and self.found.search(row.strip.text):
            return self._marked(row.painted[1], row.strip.text, self.found).apply_offsets(0, y)
        return row.painted[1]

    # -- selection ------------------------------------------------------------------------------

    def _selected(self, strip: Strip, start: int, end: int) -> Strip:
        style = self.screen.get_component_rich_style("screen--selection")
        # While the window shrinks, a row may be longer than what is shown of it.
        first, last = (cell_len(strip.text[:at]) for at in (start, end))
        parts = strip.divide([first, max(first, last), strip.cell_length])
        chosen = Strip(list(Segment.apply_style(parts[1], post_style=style)))
        return Strip.join([parts[0], chosen, *parts[2:]])

    def _marked(self, strip: Strip, text: str, words: re.Pattern[str]) -> Strip:
        for match in words.finditer(text):
            start, end = (GUTTER + place for place in match.span())
            strip = self._selected(strip, start, end)
        return strip

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        first = selection.start.y if selection.start else 0
        stop = selection.end.y + 1 if selection.end else maxsize
        while self.list.draw(first, stop, inf):
            pass
        text, join = [], ""
        for y in range(first, min(stop, len(self.list))):
            found, span = self.list.row(y), selection.get_span(y)
            if found is None or span is None or (row := found[1]).ornament:
                continue
            start, end = (max(place - GUTTER, 0) if place >= 0 else None for place in span)
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
            first, last = self.list.span(found[0])
            last -= 1
        stop = Offset(GUTTER + end, last) if end is not None else Offset(0, last + 1)
        self.screen.selections = {self: Selection(Offset(GUTTER + start, first), stop)}

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()
