"""Entries one under another in a widget that scrolls: only what is near the screen is drawn."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from time import perf_counter
from typing import Any, NamedTuple

from rich.segment import Segment
from textual import events
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from .rows import NEW_LINE, Row
from .source import Source
from .turn import Entry, Look, Part

GUTTER = 2
"""Columns to the left of the text."""

KEPT = 4_000
"""Rows that stay drawn."""

AHEAD_S = 0.008
"""How long one go at drawing what is just off the screen may take."""


class Place(NamedTuple):
    """A row that stays where it is while others change."""

    entry: Entry
    part: int
    row: int
    """Within the part."""
    source: Source | None
    """The text that it shows, and where in it, for parts that may be cut in another way."""
    at: float


class Canvas(ScrollView):
    """Keeps the place where the user scrolled to, or follows the end."""

    FOCUS_ON_CLICK = False

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.following = True
        """New rows at the end scroll into view."""
        self.entries: list[Entry] = []
        self._ends: list[int] | None = None
        self._drawn: dict[Part, None] = {}
        self._settling = False
        self._ahead_waits = False

    # -- what the subclass says -----------------------------------------------------------------

    @property
    def look(self) -> Look:
        raise NotImplementedError

    def beside(self, entry: Entry | None) -> Strip:
        """What stands to the left of an entry's rows; of None's, blanks."""
        raise NotImplementedError

    # -- rows -----------------------------------------------------------------------------------

    @property
    def ends(self) -> list[int]:
        """Where each entry ends, in rows."""
        if self._ends is None:
            width = self.look.width
            self._ends = list(accumulate(entry.height(width) for entry in self.entries))
        return self._ends

    def start(self, index: int) -> int:
        """The first row of an entry."""
        return self.ends[index - 1] if index else 0

    def at(self, y: int) -> tuple[int, int]:
        """The entry that a row belongs to, and the row's place in it."""
        index = min(bisect_right(self.ends, y), len(self.entries) - 1)
        return index, y - self.start(index)

    def row(self, y: int) -> tuple[Entry, Row] | None:
        """A row, drawn."""
        if not 0 <= y < (self.ends[-1] if self.entries else 0):
            return None
        index, inside = self.at(y)
        entry = self.entries[index]
        if not entry.parts:
            entry.arrange(self.look)
        part, line = entry.place(inside)
        rows = self._draw(entry.parts[part])
        return (entry, rows[line]) if line < len(rows) else None

    def _draw(self, part: Part) -> list[Row]:
        self._drawn.pop(part, None)
        self._drawn[part] = None
        return part.drawn()

    def _draw_between(self, first: int, last: int, until: float | None = None) -> bool:
        """Draws what is not drawn yet of these rows, the lowest first. Whether that was anything.

        Args:
            until: the moment at which to stop, whatever is left.
        """
        drew = False
        index = self.at(last - 1)[0] if self.entries and last > first else -1
        while index >= 0 and self.ends[index] > first:
            start, entry = self.start(index), self.entries[index]
            if not entry.parts:
                entry.arrange(self.look)
                self._ends, drew = None, True
                continue
            low = entry.place(max(first - start, 0))[0]
            high = entry.place(max(min(last, self.ends[index]) - 1 - start, 0))[0]
            for part in reversed(entry.parts[low : high + 1]):
                if part.rows is None:
                    self._draw(part)
                    drew = True
                if until is not None and perf_counter() > until:
                    break
            entry.measure()
            self._ends = None if drew else self._ends
            if until is not None and perf_counter() > until:
                break
            index -= 1
        return drew

    # -- keeping the place ----------------------------------------------------------------------

    def _place(self, y: int) -> Place | None:
        if not self.entries:
            return None
        index, inside = self.at(y)
        entry = self.entries[index]
        if not entry.parts:
            return Place(entry, 0, 0, None, 0)
        number, row = entry.place(inside)
        part = entry.parts[number]
        block, at = part.block, 0.0
        if block is not None:
            at = block.start + (block.stop - block.start) * row / max(part.height, 1)
        return Place(entry, number, row, part.source, at)

    def _row_of(self, place: Place) -> int:
        if place.entry not in self.entries:
            return 0
        entry, number, row = place.entry, place.part, place.row
        start = self.start(self.entries.index(entry))
        if place.source is not None and entry.parts:
            for index, part in enumerate(entry.parts):
                block = part.block
                if part.source is place.source and block and block.start <= place.at < block.stop:
                    self._draw(part)
                    entry.measure()
                    self._ends = None
                    size = max(block.stop - block.start, 1)
                    number = index
                    row = int(part.height * (place.at - block.start) / size + 0.5)
                    break
        if number >= len(entry.parts):
            return start
        row = min(row, max(entry.parts[number].height - 1, 0))
        return start + (entry.ends[number - 1] if number else 0) + row

    def relook(self) -> None:
        """Draws everything anew, for another look."""
        place = None if self.following else self._place(self.scroll_offset.y)
        for entry in self.entries:
            entry.forget()
        self._drawn.clear()
        self._ends = None
        if place is not None:
            place.entry.arrange(self.look)
        self.changed(place)

    def changed(self, place: Place | None = None) -> None:
        """Entries or their heights have changed.

        Args:
            place: what stays at the top of the screen; None: what is there now.
        """
        if not self.is_attached or not self.size:
            self._ends = None
            return
        before = self.scroll_offset.y
        if place is None and not self.following and self._ends is not None:
            place = self._place(before)
        self._ends = None
        top = self._settle(before, place)
        self._shown(top)

    def _settle(self, top: int, place: Place | None) -> int:
        """Draws what is on the screen. Returns the row that is its first one."""
        height = self.size.height
        for _ in range(20):
            whole = self.ends[-1] if self.entries else 0
            last = max(whole - height, 0)
            if self.following:
                top = last
            else:
                top = min(self._row_of(place) if place else top, last)
                place = place or self._place(top)
            if not self._draw_between(top, min(top + height, whole)):
                break
        return top

    def _shown(self, top: int) -> None:
        """Tells Textual what there is now, and what of it is on the screen."""
        size = Size(self.size.width, self.ends[-1] if self.entries else 0)
        self._settling = True
        if size != self.virtual_size:
            # Set as it is: the reactive would lay out the whole screen for every new row.
            self.set_reactive(Widget.virtual_size, size)
            self._scroll_update(size)
        self.scroll_y = self.scroll_target_y = top
        self._settling = False
        self.refresh()
        self._look_ahead()

    def _look_ahead(self) -> None:
        if not self._ahead_waits:
            self._ahead_waits = True
            self.set_timer(0.02, self._ahead)

    def _ahead(self) -> None:
        """Draws a screen above and below, a little at a time, and lets go of what is far."""
        self._ahead_waits = False
        top, height = self.scroll_offset.y, self.size.height
        if not self.entries or not height:
            return
        place = self._place(top)
        until = perf_counter() + AHEAD_S
        first, last = max(top - height, 0), min(top + 2 * height, self.ends[-1])
        if self._draw_between(first, last, until):
            top = self._settle(top, place)
            self._shown(top)
        while len(self._drawn) > KEPT:
            part = next(iter(self._drawn))
            del self._drawn[part]
            part.rows = None

    # -- Textual --------------------------------------------------------------------------------

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._settling and round(old_value) != round(new_value):
            self.following = round(new_value) >= self.max_scroll_y
            self.changed()

    def scroll_to(self, *args: Any, **options: Any) -> None:
        # Heights become known while one scrolls, so a distance to glide over is not.
        super().scroll_to(*args, **{**options, "animate": False})

    def on_resize(self, event: events.Resize) -> None:
        self.relook()

    def render_line(self, y: int) -> Strip:
        y += self.scroll_offset.y
        width, base = self.size.width, self.look.inks.base
        found = self.row(y)
        if found is None:
            return Strip.blank(width, base)
        entry, row = found
        gutter = self.beside(None if row.bare else entry)
        if row.painted is None or row.painted[:2] != (y, width) or row.painted[2] is not gutter:
            strip = Strip.join([gutter, row.strip]).crop_extend(0, width, base)
            row.painted = (y, width, gutter, strip.apply_offsets(0, y))
        strip = row.painted[3]
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(y)) is not None:
            strip = self._selected(strip, *span)
        return strip

    # -- selection ------------------------------------------------------------------------------

    def _selected(self, strip: Strip, start: int, end: int) -> Strip:
        style = self.screen.get_component_rich_style("screen--selection")
        first = strip.index_to_cell_position(start)
        last = strip.index_to_cell_position(end) if end >= 0 else len(strip.text.rstrip())
        parts = strip.divide([first, max(first, last), strip.cell_length])
        chosen = Strip(list(Segment.apply_style(parts[1], post_style=style)))
        return Strip.join([parts[0], chosen, *parts[2:]])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        whole = self.ends[-1] if self.entries else 0
        first = selection.start.y if selection.start else 0
        last = min(selection.end.y if selection.end else whole - 1, whole - 1)
        text, join = [], ""
        for y in range(first, last + 1):
            found = self.row(y)
            span = selection.get_span(y)
            if found is None or span is None:
                continue
            _, row = found
            start, end = (max(place - GUTTER, 0) if place >= 0 else None for place in span)
            shown = row.strip.text[:end].rstrip() if end is not None else row.strip.text.rstrip()
            text += [join, shown[max(start or 0, row.lead) :]]
            join = row.join
        return "".join(text), NEW_LINE

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()
