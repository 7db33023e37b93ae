"""A widget that shows a list of rows and scrolls over it."""

from __future__ import annotations

import re
from math import inf
from time import perf_counter
from typing import Any

from rich.segment import Segment
from textual import events
from textual.geometry import Offset, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from .rowlist import Place, RowList
from .rows import NEW_LINE
from .turn import Entry, Look

GUTTER = 2
"""Columns to the left of the text."""

KEPT = 2_000
"""Parts that stay drawn."""

SETTLE_S = 0.03
"""After so long a screen is shown with what is drawn of it; the rest follows at once."""

AHEAD_S = 0.008
"""How long one go at drawing what is just off the screen may take, and the pause after it."""

PAUSE_S = 0.02


def word(text: str, at: int) -> tuple[int, int]:
    """Where the word begins and ends that a character belongs to; blanks are words too."""
    for found in re.finditer(r"\w+|\s+|[^\w\s]+", text):
        if found.start() <= at < found.end():
            return found.span()
    return at, at


class Canvas(ScrollView):
    """Keeps the place where the user scrolled to, or follows the end."""

    FOCUS_ON_CLICK = False

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.following = True
        """New rows at the end scroll into view."""
        self.list = RowList()
        self._settling = False
        self._ahead_waits = False

    # -- what the subclass says -----------------------------------------------------------------

    @property
    def look(self) -> Look:
        raise NotImplementedError

    def beside(self, entry: Entry | None) -> Strip:
        """What stands to the left of an entry's rows; of None's, blanks."""
        raise NotImplementedError

    # -- what is on the screen ------------------------------------------------------------------

    def relook(self) -> None:
        """Draws everything anew if the look has changed."""
        if self.size and self.look != self.list.look:
            place = None if self.following else self.list.place(self.scroll_offset.y)
            self.list.forget(self.look)
            self.changed(place)

    def changed(self, place: Place | None = None) -> None:
        """Entries, or parts of them, have changed.

        Args:
            place: what stays at the top of the screen; None: what is there now.
        """
        if not self.size:
            return
        before = self.scroll_offset.y
        if place is None and not self.following:
            place = self.list.place(before)
        self.list.measure()
        self._settle(before, place)

    def _settle(self, top: int, place: Place | None) -> None:
        """Draws what is on the screen, and tells Textual of it."""
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
            # Set as it is: the reactive would lay out the whole screen for every new row.
            self.set_reactive(Widget.virtual_size, size)
            self._scroll_update(size)
        self.scroll_y = self.scroll_target_y = top
        self._settling = False

    def _ahead(self) -> None:
        """Draws what is left of the screen, then a screen above and below, a little at a time."""
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
        # Heights become known while one scrolls, so a distance to glide over is not.
        super().scroll_to(*args, **{**options, "animate": False})

    def on_resize(self, event: events.Resize) -> None:
        self.relook()
        self.changed()

    def render_line(self, y: int) -> Strip:
        y += self.scroll_offset.y
        width, base = self.scrollable_content_region.width, self.list.look.styles.base
        found = self.list.row(y)
        if found is None:
            return Strip.blank(width, base)
        entry, row = found
        gutter = self.beside(None if row.bare else entry)
        if row.painted is None or row.painted[:2] != (y, width) or row.painted[2] is not gutter:
            strip = Strip.join([gutter, row.strip]).crop_extend(0, width, base)
            row.painted = (y, width, gutter, strip.apply_offsets(0, y))
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(y)) is not None:
            # The offsets of a strip that was divided no longer hold.
            full = GUTTER + len(row.strip.text)
            return self._selected(row.painted[3], full, *span).apply_offsets(0, y)
        return row.painted[3]

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
        """Two clicks select a word, three a line as it was written, four the whole turn."""
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
