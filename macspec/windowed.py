"""Windowed caches that can be rolled back.

mlx-lm's windowed caches keep the bare window, in which one more position overwrites the oldest; the
caches here keep ``SLACK`` positions beyond it, in temporal order.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ChunkedKVCache, RotatingKVCache

SLACK = 40
"""Positions kept beyond a window: a round of depth 32 can be rolled back, with some to spare."""


class WindowedKVCache(RotatingKVCache):
    """A sliding window that can be rolled back by up to ``slack`` positions, also after it wrapped.

    Takes the place of a `RotatingKVCache` with ``keep=0``: the attention sees the same positions,
    oldest first. ``keys`` and ``values`` [1, heads, room, width] hold the last ``_idx`` of
    ``offset`` positions; the front is dropped, or room added, once in ``step`` positions.

    A wider mask than ``max_size`` becomes ``max_size``: mlx-lm's single-row passes see no more.
    """

    keys: Any
    values: Any
    slack = SLACK
    _shown = 0

    def __init__(self, max_size: int, slack: int = SLACK) -> None:
        super().__init__(max_size)  # type: ignore[no-untyped-call]
        self.slack = slack

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append ``keys``, ``values`` [1, heads, rows, width]; return what these rows attend to.

        That is at most the ``max_size - 1`` positions before the first row, and the rows.
        """
        rows = keys.shape[2]
        self._make_room(keys, values)
        end = self._idx + rows
        self.keys[..., self._idx : end, :] = keys
        self.values[..., self._idx : end, :] = values
        self.offset += rows
        self._idx = end
        self._shown = min(end, self.max_size - 1 + rows)
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """What the newest pass attends to; layers that share this cache read it here."""
        return self.newest(self._shown)

    def newest(self, count: int) -> tuple[mx.array, mx.array]:
        """Of the newest ``count`` positions, those that are held, oldest first."""
        start = max(self._idx - count, 0)
        return self.keys[..., start : self._idx, :], self.values[..., start : self._idx, :]

    def _make_room(self, keys: mx.array, values: mx.array) -> None:
        rows = keys.shape[2]
        kept = min(self._idx, self.max_size - 1 + self.slack)
        full = self.keys is None or self._idx + rows > self.keys.shape[2]
        if not full and self._idx - kept < self.step:
            return
        room = -(-rows // self.step) * self.step

        def moved(stored: mx.array | None, new: mx.array) -> mx.array:
            empty = mx.zeros((*new.shape[:2], room, new.shape[3]), new.dtype)
            if stored is None:
                return empty
            return mx.concatenate([stored[..., self._idx - kept : self._idx, :], empty], axis=2)

        # One statement: an interrupt must not part the arrays from the count that explains them.
        self.keys, self.values, self._idx = moved(self.keys, keys), moved(self.values, values), kept

    def make_mask(
        self, rows: int, window_size: int | None = None, return_array: bool = False
    ) -> Any:
        """The mask for the next ``rows`` rows: None, "causal" or bool [rows, positions shown]."""
        window = min(window_size or self.max_size, self.max_size)
        if rows > 1:
            return super().make_mask(rows, window_size=window, return_array=return_array)
        if self.offset < window or window == self.max_size:
            return None
        shown = min(self.offset + 1, self.max_size)
        return mx.arange(shown) >= shown - window

    def holds(self, length: int) -> bool:
        """Whether every position is kept that row ``length`` would attend to."""
        first = self.offset - self._idx
        return first <= max(0, length - self.max_size + 1) and length <= self.offset

    def trim(self, n: int) -> int:
        """Take back the newest ``n`` positions, as far as `holds` allows; return how many."""
        n = min(n, self._idx)
        self.offset -= n
        self._idx -= n
        self._shown = min(self._shown, self._idx)
        return n


class ChunkedWindowKVCache(ChunkedKVCache):
    """A chunked cache that can be rolled back by up to ``slack`` positions, also across a chunk.

    The model masks by absolute position, so positions kept longer change nothing; the front is
    dropped once in ``step`` positions.
    """

    keys: Any
    values: Any
    slack = SLACK

    def __init__(self, chunk_size: int, slack: int = SLACK) -> None:
        super().__init__(chunk_size)  # type: ignore[no-untyped-call]
        self.slack = slack

    def maybe_trim_front(self) -> None:
        """Drop the positions that neither the chunk nor a rollback needs; models call this."""
        stored = self.offset - self.start_position
        surplus = stored - self.chunk_size - self.slack
        if surplus < self.step:
            return
        keys, values = self.keys[..., surplus:stored, :], self.values[..., surplus:stored, :]
        self.keys, self.values, self.start_position = keys, values, self.start_position + surplus

    def holds(self, length: int) -> bool:
        """Whether every position is kept that row ``length`` would attend to."""
        chunk = length - length % self.chunk_size
        return self.start_position <= chunk and length <= self.offset
