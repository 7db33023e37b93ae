"""Heads as drafters: kept in step with what the target has committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from ..cache import ModelCache
from ..choices import MAX_DEPTH
from ..heads.agreement import CLEARLY, LEAST, SURE, Agreement
from ..heads.eagle import Eagle
from ..heads.guesses import Output
from ..models.cached import CachedModel
from .chain import Trial
from .drafter import Dispatch
from .held import HeldRows

BESIDE = 512
"""Newest tokens that are read again for the rows of other layers."""


class HeadModel:
    """Steps a head of the target: one that is applied repeatedly, or one for each depth.

    The caches have a row for each pair of a hidden row of the target and the committed token after
    it; that of the second depth, for what the first one put out and the token after that, and so
    on. Rows with drafted tokens are replaced in the next round. Where the target's rows were not
    kept, pairs are missing: the head then knows less, and is right less often.

    Args:
        target: its passes show the hidden rows that the head wants.
        context: positions that the target can handle.
    """

    at_once = False

    def __init__(self, head: Any, target: CachedModel, context: int) -> None:
        assert target.hidden is not None
        self.head, self.name = head, str(head.name)
        self.context = context
        self.fault: str | None = None
        """What seems to be wrong with its files, in half a sentence."""
        self._target, self._hidden = target, target.hidden
        tap = self._hidden.tap
        self._depths = [_Depth(it, at, it.output(tap)) for at, it in enumerate(head.depths)]
        self._start = self._step = 0
        """The first position that was read in this round, and how many tokens were drafted."""
        self._out = mx.zeros((0, 0))
        """What the newest step put out, [n, width]."""
        self._next = mx.zeros((0,), mx.uint32)
        """The tokens that it was put out for."""
        self._judged = False

    @property
    def length(self) -> int:
        return self._depths[0].length

    @property
    def _whole(self) -> int:
        """The positions that every depth has read."""
        return min(it.length for it in self._depths)

    def room(self, tokens: Sequence[int]) -> int:
        most = len(self._depths) if len(self._depths) > 1 else self.context
        return min(max(self.context - len(tokens), 0), most)

    def ready(self, tokens: Sequence[int]) -> bool:
        return self._hidden.start <= len(tokens) - 2 < self._hidden.stop

    def unread(self, tokens: Sequence[int]) -> int:
        pending = len(tokens) - 1 - max(self.length, self._hidden.start)
        # What the newest round committed is read in any case.
        return pending if pending > MAX_DEPTH + 1 else 1

    def read_next(self, tokens: Sequence[int], boundaries: Sequence[int] = ()) -> None:
        self._judge(tokens)
        stop = min(self._hidden.stop, len(tokens) - 1)
        start = max(self._whole, self._hidden.start)
        if start < stop:
            stop = min(stop, start + self._target.chunk.rows)
            self._feed(tokens, start, stop)
            for depth in self._depths[1:]:
                following = tokens[stop + depth.number : stop + depth.number + 1]
                self._deepen(depth, mx.array(list(following), mx.uint32))
            mx.async_eval([it.cache.arrays for it in self._depths])
            self._forget(stop)
        else:  # the rows between were not kept
            length = max(self.length, min(self._target.length, len(tokens) - 1))
            for depth in self._depths:
                depth.skip(length)

    def first(self, tokens: Sequence[int], depth: int, dispatch: Dispatch) -> mx.array:
        self._judge(tokens)
        last = len(tokens) - 1
        behind = self._target.chunk.rows if len(self._depths) == 1 else MAX_DEPTH
        while last - max(self._whole, self._hidden.start) > behind + len(self._depths):
            self.read_next(tokens)
        # Where the newest pair was read already, it is read again for what it puts out.
        self._feed(tokens, min(max(self._whole, self._hidden.start), last - 1), last, dispatch)
        self._forget(last)
        return self._logits(self._depths[0])

    def next(self, token: mx.array, dispatch: Dispatch) -> mx.array:
        self._step += 1
        depth = self._depths[min(self._step, len(self._depths) - 1)]
        if depth.number == self._step:
            self._deepen(depth, token)
        else:
            self._out = depth.step(self._out[-1:], self._embedded(token))
        return self._logits(depth)

    def rollback(self, length: int) -> None:
        for depth in self._depths:
            depth.keep(length - 1 - depth.number)

    def reading(self, tokens: Sequence[int]) -> Trial:
        """As any model's, with an empty cache, beside copies of the newest hidden row."""
        newest = self._hidden.rows(self._hidden.stop - 1, self._hidden.stop)
        rows = self.head.enter([mx.repeat(it, len(tokens), axis=0) for it in newest])
        embedded = self._embedded(mx.array(list(tokens), mx.uint32))
        fresh = [_Depth(it.head, it.number, it.output) for it in self._depths]

        def again() -> None:
            for depth in fresh:
                depth.keep(0)

        return lambda: [it.step(rows, embedded) for it in fresh], again

    def notice(self, tokens: Sequence[int]) -> str | None:
        return None if self.fault is None else f"the head drafts badly: {self.fault}"

    def _feed(
        self, tokens: Sequence[int], start: int, stop: int, dispatch: Dispatch | None = None
    ) -> None:
        """Read the pairs of positions ``start`` to ``stop``, in place of what was drafted."""
        self._start, self._step = start, 0
        self._next = mx.array(list(tokens[start + 1 : stop + 1]), mx.uint32)
        rows = self.head.enter(self._hidden.rows(start, stop))
        self._out = self._depths[0].feed(start, rows, self._embedded(self._next), dispatch)

    def _deepen(self, depth: _Depth, following: mx.array) -> None:
        """Feed what the depth before put out beside the tokens one further, as far as known.

        Args:
            following: the next one, or none.
        """
        self._next = mx.concatenate([self._next[1:], following])
        if known := self._next.shape[0]:
            self._out = depth.feed(self._start, self._out[:known], self._embedded(self._next))

    def _embedded(self, tokens: mx.array) -> mx.array:
        embedded: mx.array = self.head.embedded(tokens, self._hidden.tap.embedding)
        return embedded

    def _judge(self, tokens: Sequence[int]) -> None:
        """Once there is enough text, find out how the head's files are to be read."""
        if self._judged or min(self._hidden.stop, len(tokens) - 1) - self._hidden.start <= LEAST:
            return
        found = Agreement(self.head, self._hidden, tokens)
        self.fault = found.settle()
        if found.agreed < SURE and isinstance(self.head, Eagle):
            self._move(tokens, found.agreed)
        self._judged = True
        self.rollback(0)

    def _move(self, tokens: Sequence[int], agreed: float) -> None:
        """Read the layers beside those that the files name, if the head then agrees much more."""
        before, module = self._hidden, self._target.module
        start = max(before.stop - BESIDE, 0)
        text = mx.array(list(tokens[start : before.stop]), mx.uint32)[None]
        for by in (-1, 1):
            self.head.move(by)
            self._hidden = self._target.show(self.head.wanted)
            if min(self.head.wanted[1:], default=-1) >= 0 and self._hidden.tap.reason is None:
                with self._hidden.noting(start):
                    module(text, cache=ModelCache(module).layers)
                found = Agreement(self.head, self._hidden, tokens)
                found.settle()
                if found.agreed >= agreed + CLEARLY:
                    self.fault = None
                    return
        self.head.move(0)
        self._hidden = self._target.hidden = before

    def _forget(self, stop: int) -> None:
        """Let go of the rows that were read, but for what rollbacks make the depths read again."""
        if self._judged:
            self._hidden.drop(min(stop, self._whole) - len(self._depths))

    def _logits(self, depth: _Depth) -> mx.array:
        logits = depth.output(self._out[-1:])
        # Weights that are damaged must not reach the rule as a distribution.
        return self._target.fitted(mx.nan_to_num(logits, neginf=-mx.inf))


class _Depth(HeldRows):
    """A head for one depth, and its cache: a pair for each position, that of its hidden row.

    Args:
        number: of tokens between the one that it reads first and the newest that was committed when
            the target put its row out.
        output: makes logits of what it puts out.
    """

    def __init__(self, head: Any, number: int, output: Output) -> None:
        super().__init__(head)
        self.head, self.number, self.output = head, number, output

    def feed(
        self,
        start: int,
        rows: mx.array,
        embedded: mx.array,
        dispatch: Dispatch | None = None,
    ) -> mx.array:
        """Read pairs [n, width] from position ``start`` on, in place of what was drafted.

        Args:
            dispatch: starts an evaluation; with it the device begins while the step is being built.
        """
        self.keep(start)
        out = self.step(rows, embedded, dispatch)
        self.add(start, start + rows.shape[0])
        return out

    def step(
        self, rows: mx.array, embedded: mx.array, dispatch: Dispatch | None = None
    ) -> mx.array:
        """What the head puts out for pairs, [n, width] each."""
        self.cache.mark()
        layers = self.cache.layers if dispatch is None else self.cache.early(dispatch)
        out: mx.array = self.head(rows[None], embedded[None], layers)
        self.cache.advance(rows.shape[0])
        return out[0]
