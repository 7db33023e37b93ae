"""Pieces of a reply, held back so that drawing them never takes more than a share of the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from textual.timer import Timer
from textual.widget import Widget

from ..chat.turns import TextPiece

PAUSE_S = 0.1
"""Between two flushes, at least."""

SHARE = 10
"""A flush that took a while is followed by this many times as long without one."""


class Buffer:
    """What came since the last flush.

    Args:
        widget: whose timer is used.
        show: what is done with it; takes as long as showing it takes.
    """

    def __init__(self, widget: Widget, show: Callable[[Sequence[TextPiece]], None]) -> None:
        self._widget, self._show = widget, show
        self._waiting: list[TextPiece] = []
        self._timer: Timer | None = None
        self._next = 0.0

    def add(self, piece: TextPiece) -> None:
        """One more; it is shown within a moment, at once if nothing was for a while."""
        self._waiting.append(piece)
        if self._timer is None:
            wait = max(self._next - perf_counter(), 0.001)
            self._timer = self._widget.set_timer(wait, self.flush)

    def flush(self) -> None:
        """Shows what waits now."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        if waiting:
            began = perf_counter()
            self._show(waiting)
            now = perf_counter()
            self._next = now + max(PAUSE_S, SHARE * (now - began))

    def clear(self) -> None:
        """Forgets what waits."""
        self._waiting = []
