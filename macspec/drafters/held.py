"""Which positions of the text the cache of a head holds."""

from __future__ import annotations

from typing import Any

from ..cache import ModelCache


class HeldRows:
    """A head's cache with a row for each position that it has read, in order, gaps between them.

    Rows behind those, of what was drafted, stay only until the next ``keep``.
    """

    def __init__(self, head: Any) -> None:
        self.cache = ModelCache(head)
        self._ranges: list[range] = []

    @property
    def length(self) -> int:
        """The position after the last that was read."""
        return self._ranges[-1].stop if self._ranges else 0

    def add(self, start: int, stop: int) -> None:
        """Rows of these positions were read."""
        if self._ranges and self._ranges[-1].stop == start:
            start = self._ranges.pop().start
        self._ranges.append(range(start, stop))

    def skip(self, position: int) -> None:
        """Go on from a position; what is before it stays unread."""
        self._ranges.append(range(position, position))

    def keep(self, position: int) -> None:
        """Keep the rows below a position, and nothing that was drafted; none at all where a window
        has dropped what they would attend to."""
        held = (range(it.start, min(it.stop, position)) for it in self._ranges)
        self._ranges = [it for it in held if it.start <= it.stop]
        if not self.cache.can_rollback(sum(map(len, self._ranges))):
            self._ranges = []
        self.cache.rollback(sum(map(len, self._ranges)))
