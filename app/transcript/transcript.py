"""The conversation: finished turns, and the reply that streams.

One widget draws all of it row by row. Rows are drawn when they come near the screen, so a long
conversation opens at once, and a streaming reply costs the same whatever is above it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import inf
from threading import Thread
from time import perf_counter
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import reactive
from textual.timer import Timer
from textual.widget import Widget

from ..chat.turns import TextPiece, Turn
from .canvas import GUTTER, Canvas
from .markdown import parser
from .rows import CLASSES, CSS, PARTS, Look, Styles, part_style
from .turn import Note, TurnRows

PAUSE_S = 0.1
"""Between two writes of a reply's text, at least."""

SHARE = 10
"""A write is followed by a pause this many times as long as it took."""


WIDEST = 120
"""Most columns of text: longer lines are hard to read."""


def warm() -> None:
    from .prose import lexer

    parser()
    lexer("python")


VERSION = re.compile(r"‹ \d+/\d+ ›")


class TurnChosen(Message):
    """A turn was chosen with the arrow keys; None: no turn is chosen any more."""

    def __init__(self, turn_id: int | None) -> None:
        super().__init__()
        self.turn_id = turn_id


class VersionAsked(Message):
    """The left or the right half of a turn's version was clicked."""

    def __init__(self, turn_id: int, by: int) -> None:
        super().__init__()
        self.turn_id, self.by = turn_id, by


class Transcript(Canvas, can_focus=True, inherit_bindings=False):
    COMPONENT_CLASSES: ClassVar[set[str]] = CLASSES
    DEFAULT_CSS = f"""
    Transcript {{
        height: 1fr;
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        background: $background;
        color: $foreground;
    }}
    Transcript:focus {{ scrollbar-color: $primary; }}
    {CSS}
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(-1)", "Turn above", show=False),
        Binding("down", "step(1)", "Turn below", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home,g", "scroll_home", "Beginning", show=False),
        Binding("end", "follow", "Follow the end", show=False),
    ]

    tint: reactive[bool] = reactive(False, repaint=False)
    reasoning_open: reactive[bool] = reactive(False, repaint=False)

    def __init__(self) -> None:
        super().__init__()
        self.chosen: int | None = None
        """The id of the chosen turn."""
        self._turns: dict[int, TurnRows] = {}
        self._live: TurnRows | None = None
        self._waiting: list[TextPiece] = []
        """Pieces of the reply that are not shown yet."""
        self._write_timer: Timer | None = None
        self._next_write = 0.0
        self._theme: Styles | None = None
        self._sought: tuple[int, re.Pattern[str]] | None = None
        """What ``find`` is to show once there is room."""
        self.elsewhere: Callable[[Widget, events.Key], object] = lambda widget, event: False
        """Takes keys that are not meant for this widget."""

    # -- what is shown --------------------------------------------------------------------------

    async def show(self, turns: Sequence[Turn]) -> None:
        """Shows only these turns, scrolled to the end."""
        self._waiting.clear()
        self.found, self.unseen, self._sought = None, False, None
        self.list.entries.clear()
        self._turns, self._live, self.chosen = {}, None, None
        self._add(turns)

    async def begin(self, turn: Turn) -> None:
        """Adds a turn: the user's, or a reply that starts to stream."""
        self._write()
        self._add([turn])

    def feed(self, piece: TextPiece) -> None:
        """Shows a piece of the reply at once after a pause, else a moment later together with
        others, so that drawing takes only a share of the time."""
        self._waiting.append(piece)
        if self._write_timer is None:
            wait = max(self._next_write - perf_counter(), 0.001)
            self._write_timer = self.set_timer(wait, self._write)

    async def end(self, turn: Turn) -> None:
        """The streaming reply is finished."""
        self._write()
        self._live = None
        self.update_turn(turn)

    def update_turn(self, turn: Turn) -> None:
        """A turn has other siblings, marks or numbers."""
        if (rows := self._turns.get(turn.id)) is not None and rows.turn != turn:
            rows.update(turn, text=rows is not self._live)
            self._borders()
            self.changed()

    def note(self, line: str) -> None:
        """Adds a notice at the end, such as a switch of models."""
        self.list.entries.append(Note(line))
        self.changed()

    def _add(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            rows = self._turns[turn.id] = TurnRows(turn)
            self.list.entries.append(rows)
            if turn.state == "open":
                self._live = rows
        self._borders()
        self.action_follow()

    def _borders(self) -> None:
        """Marks where the model's context begins."""
        dropped = False
        for rows in self._turns.values():
            if rows.border != (border := dropped and not rows.turn.dropped):
                rows.border = border
                rows.compose()
            dropped = rows.turn.dropped

    def _write(self) -> None:
        if self._write_timer is not None:
            self._write_timer.stop()
            self._write_timer = None
        pieces, self._waiting = self._waiting, []
        if not pieces or (live := self._live) is None:
            return
        began = perf_counter()
        thought = not live.answer.text
        live.take(pieces)
        if thought and live.answer.text and not self.following and live.unfolded is None:
            live.unfolded = True  # Do not fold what is being read.
        live.compose()
        self.unseen = not self.following
        self.changed()
        now = perf_counter()
        self._next_write = now + max(PAUSE_S, SHARE * (now - began))

    # -- look -----------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self.relook()
        self.changed()
        if self._sought is not None:
            sought, self._sought = self._sought, None
            self.find(*sought)

    def relook(self) -> None:
        """Draws everything again if the theme, the width or an option has changed."""
        if self._theme is None:
            parts = {part: part_style(self, part) for part in PARTS}
            self._theme = Styles(self.rich_style, parts)
        room = self.scrollable_content_region.width
        width = max(min(room - GUTTER - 1, WIDEST), 1)
        self.set_look(Look(self._theme, width, self.tint, self.reasoning_open))

    def notify_style_update(self) -> None:
        super().notify_style_update()
        # The parts get their styles after the widget itself.
        self.call_next(self._restyle)

    def _restyle(self) -> None:
        self._theme = None
        self.relook()

    def watch_tint(self) -> None:
        self.relook()

    def watch_reasoning_open(self) -> None:
        for rows in self._turns.values():
            rows.unfolded = None
            rows.compose()
        self.relook()

    # -- keys and mouse -------------------------------------------------------------------------

    def action_follow(self) -> None:
        self.following, self.unseen = True, False
        self.changed()

    def action_page(self, by: int) -> None:
        self.scroll_relative(y=by * max(self.size.height - 2, 1), animate=False)

    def action_step(self, by: int) -> None:
        """Chooses the turn above or below; within a long turn it scrolls first."""
        turns = list(self._turns.values())
        if not turns:
            return
        ids = [rows.turn.id for rows in turns]
        top, height = self.scroll_offset.y, self.size.height
        if self.chosen is None:
            place = len(turns) - 1 if by < 0 else len(turns)
        else:
            place = ids.index(self.chosen)
            first, last = self.list.span(turns[place])
            if (by < 0 and first < top < last) or (by > 0 and first <= top + height < last):
                self.scroll_relative(y=by * max(height // 2, 1), animate=False)
                return
            place += by
        if place < len(ids):
            self.choose(ids[max(place, 0)])
        else:
            self.choose(None)
            self.action_follow()

    def find(self, turn_id: int, words: re.Pattern[str]) -> None:
        """Choose a turn, mark the words everywhere, and scroll to their first place in it."""
        if turn_id not in self._turns:
            return
        if not self.size:  # It was hidden until now.
            self._sought = turn_id, words
            return
        self.choose(turn_id)
        self.found, entry = words, self._turns[turn_id]
        while self.list.draw(*self.list.span(entry), inf):
            pass
        first, last = self.list.span(entry)
        rows = ((y, self.list.row(y)) for y in range(first, last))
        at = next((y for y, row in rows if row and words.search(row[1].strip.text)), first)
        self.following = False
        self.scroll_to(y=max(at - self.size.height // 3, 0))
        self.refresh()

    def choose(self, turn_id: int | None) -> None:
        self.found = None
        for rows in self._turns.values():
            rows.choose(rows.turn.id == turn_id)
        self.chosen = turn_id
        if turn_id is not None:
            self.scroll_to(y=self._toward(self._turns[turn_id]))
        self.refresh()
        self.post_message(TurnChosen(turn_id))

    def _toward(self, turn: TurnRows) -> int:
        """Where to scroll to see a turn, or at least its start."""
        first, last = self.list.span(turn)
        top, height = self.scroll_offset.y, self.size.height
        if last <= top + height:
            return min(top, first) if last - first <= height else max(first, last - height)
        return min(first, max(last - height, 0)) if last - first <= height else first

    async def _on_key(self, event: events.Key) -> None:
        self.elsewhere(self, event)

    def on_mount(self) -> None:
        # Importing the Markdown renderer and lexer takes a while: not when the first reply begins.
        self.set_timer(0.5, lambda: Thread(target=warm, daemon=True).start())

    def on_click(self, event: events.Click) -> None:
        """Folds or unfolds reasoning, or chooses the turn whose header was clicked."""
        super().on_click(event)
        if event.chain > 1:
            return
        found = self.list.at(event.y + self.scroll_offset.y)
        if found is None or not isinstance(found[0], TurnRows):
            return
        rows, kind = found[0], found[1].kind
        shown = self.list.row(event.y + self.scroll_offset.y)
        mark = shown and VERSION.search(shown[1].strip.text)
        if kind == "head" and mark and mark.start() <= event.x - GUTTER < mark.end():
            half = event.x - GUTTER < (mark.start() + mark.end()) // 2
            self.post_message(VersionAsked(rows.turn.id, -1 if half else 1))
        elif kind == "head":
            self.choose(None if rows.turn.id == self.chosen else rows.turn.id)
        elif kind == "fold":
            rows.unfolded = not rows.open(self.list.look)
            rows.compose()
            self.changed()
