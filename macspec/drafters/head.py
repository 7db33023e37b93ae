"""Heads as drafters: kept in step with what the target has committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from ..cache import ModelCache
from ..choices import MAX_DEPTH
from ..heads.agreement import LEAST, Agreement
from ..models.cached import CachedModel
from .drafter import Dispatch


class HeadModel:
    """Steps a head of the target.

    The head's cache has a row for each pair of a hidden row of the target and the committed token
    after it. Rows that it drafted itself are replaced by the target's in the next round. Where the
    target's rows were not kept, pairs are missing: the head then knows less, and is right less
    often.

    Args:
        target: its passes show the hidden rows that the head wants.
        context: positions that the target can handle.
    """

    def __init__(self, head: Any, target: CachedModel, context: int) -> None:
        assert target.hidden is not None
        self.head, self.name = head, str(head.name)
        self.context = context
        self.fault: str | None = None
        """What seems to be wrong with its files, in half a sentence."""
        self._target, self._hidden = target, target.hidden
        self._cache = ModelCache(head)
        self._pairs: list[range] = []
        """Which pairs the cache holds, by the position of the hidden row."""
        self._out = mx.zeros((1, 0))
        """What the newest step put out, [1, width]."""
        self._judged = False

    @property
    def length(self) -> int:
        return self._pairs[-1].stop if self._pairs else 0

    def room(self, tokens: Sequence[int]) -> int:
        return max(self.context - len(tokens), 0)

    def ready(self, tokens: Sequence[int]) -> bool:
        return self._hidden.start <= len(tokens) - 2 < self._hidden.stop

    def unread(self, tokens: Sequence[int]) -> int:
        pending = len(tokens) - 1 - max(self.length, self._hidden.start)
        # What the newest round committed is read in any case.
        return pending if pending > MAX_DEPTH + 1 else 1

    def read_next(self, tokens: Sequence[int], boundaries: Sequence[int] = ()) -> None:
        self._judge(tokens)
        stop = min(self._hidden.stop, len(tokens) - 1)
        start = max(self.length, self._hidden.start)
        if start < stop:
            self._feed(tokens, start, min(stop, start + self._target.chunk.rows))
            mx.async_eval(self._cache.arrays)
        else:  # the rows between were not kept
            length = max(self.length, min(self._target.length, len(tokens) - 1))
            self._pairs.append(range(length, length))

    def first(self, tokens: Sequence[int], dispatch: Dispatch) -> mx.array:
        self._judge(tokens)
        last = len(tokens) - 1
        while last - max(self.length, self._hidden.start) > self._target.chunk.rows:
            self.read_next(tokens)
        # Where the newest pair was read already, it is read again for what it puts out.
        self._feed(tokens, min(max(self.length, self._hidden.start), last - 1), last)
        return self._logits()

    def next(self, token: mx.array, dispatch: Dispatch) -> mx.array:
        self._step(self._out, token)
        return self._logits()

    def rollback(self, length: int) -> None:
        self._keep(length - 1)

    def _feed(self, tokens: Sequence[int], start: int, stop: int) -> None:
        """Read the pairs of positions ``start`` to ``stop``, in place of what was drafted."""
        self._keep(start)
        rows = self.head.enter(self._hidden.rows(start, stop))
        self._step(rows, mx.array(list(tokens[start + 1 : stop + 1]), mx.uint32))
        if self._pairs and self._pairs[-1].stop == start:
            start = self._pairs.pop().start
        self._pairs.append(range(start, stop))
        if self._judged:
            self._hidden.drop(stop - 1)

    def _judge(self, tokens: Sequence[int]) -> None:
        """Once there is enough text, find out how the head's files are to be read."""
        if self._judged or min(self._hidden.stop, len(tokens) - 1) - self._hidden.start <= LEAST:
            return
        self.fault = Agreement(self.head, self._hidden, tokens).settle()
        self._judged = True
        self._keep(0)

    def _keep(self, position: int) -> None:
        """Keep the pairs below a position, and nothing that was drafted."""
        pairs = (range(it.start, min(it.stop, position)) for it in self._pairs)
        self._pairs = [it for it in pairs if it.start <= it.stop]
        self._cache.rollback(sum(map(len, self._pairs)))

    def _step(self, rows: mx.array, tokens: mx.array) -> None:
        self._cache.mark()
        embedded = self._hidden.tap.embedding(tokens)
        out: mx.array = self.head(rows[None], embedded[None], self._cache.layers)
        self._cache.advance(tokens.shape[0])
        self._out = out[0, -1:]

    def _logits(self) -> mx.array:
        logits: mx.array | None = self.head.logits(self._out)
        if logits is None:
            logits = self._hidden.tap.logits(self.head.normed(self._out))
        return self._target.fitted(logits)
