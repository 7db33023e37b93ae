"""Block drafters as drafters: one pass guesses a whole block, drawn token by token."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from ..cache import ModelCache
from ..choices import MAX_DEPTH
from ..control import RecentAcceptance
from ..heads.block import Block
from ..heads.blockcheck import LEAST, settle
from ..kernels import Walks
from ..models.cached import CachedModel
from .chain import ChainDrafter, Trial
from .drafter import Context, Dispatch, Proposal
from .held import HeldRows


class BlockModel:
    """Steps through the block that a head of the target guesses.

    The head's cache has a row of context for each committed token whose hidden rows the target has
    put out, which are all but the newest. Behind them stand the rows of the newest block until the
    next round. Where the target's rows were not kept, rows of context are missing: the head then
    knows less, and is right less often.

    Args:
        target: its passes show the hidden rows that the head wants.
        context: positions that the target can handle.
    """

    at_once = True

    def __init__(self, head: Block, target: CachedModel, context: int) -> None:
        assert target.hidden is not None
        self.head, self.name = head, head.name
        self.context = context
        self.fault: str | None = None
        """What seems to be wrong with its files, or was put right, in half a sentence."""
        self._target, self._hidden = target, target.hidden
        self._output = head.output(self._hidden.tap)
        self._held = HeldRows(head)
        self._judged = False
        self._parts: tuple[mx.array, ...] = ()
        """What the tokens of the newest block are drawn from, [n, ...] each."""
        self._row = 0
        """The one drawn from last."""

    @property
    def length(self) -> int:
        return self._held.length

    def room(self, tokens: Sequence[int]) -> int:
        return min(max(self.context - len(tokens), 0), self.head.size)

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
            self._read(start, min(stop, start + self._target.chunk.rows))
            mx.async_eval(self._held.cache.arrays)
        else:  # the rows between were not kept
            length = max(self.length, min(self._target.length, len(tokens) - 1))
            self._held.skip(length)

    def first(self, tokens: Sequence[int], depth: int, dispatch: Dispatch) -> mx.array:
        parts = self._block(tokens, depth)
        if not self.head.walks:
            parts = (self._sound(*parts),)
        dispatch(*parts)
        self._parts, self._row = parts, 0
        return self._guess(mx.array([tokens[-1]], mx.uint32))

    def walked(
        self, tokens: Sequence[int], depth: int, walks: Walks
    ) -> tuple[mx.array, mx.array | None] | None:
        """``depth`` tokens and what they were drawn from, at once; None: only one by one."""
        walk = walks(self.head, self._target.vocabulary)
        if walk is None or depth > self.head.size:
            return None
        return walk(self._block(tokens, depth), mx.array([tokens[-1]], mx.uint32))

    def _block(self, tokens: Sequence[int], depth: int) -> tuple[mx.array, ...]:
        """What the tokens of a block are drawn from, [depth, ...] each."""
        self._judge(tokens)
        last = len(tokens) - 1
        while last - max(self.length, self._hidden.start) > self._target.chunk.rows:
            self.read_next(tokens)
        self._read(max(self.length, self._hidden.start), last)
        block = self.head.tokens(tokens[-1], depth)
        embedded = self.head.embedded(block, self._hidden.tap.embedding)
        self._held.cache.mark()
        rows = self.head(None, embedded[None], self._held.cache.layers, depth)[0]
        self._held.cache.advance(block.shape[0])
        return self.head.prepared(rows, self.head.logits(rows, self._output))

    def next(self, token: mx.array, dispatch: Dispatch) -> mx.array:
        # Where more is asked for than a block has, its last row answers again.
        self._row = min(self._row + 1, self._parts[0].shape[0] - 1)
        return self._guess(token)

    def rollback(self, length: int) -> None:
        self._held.keep(length)

    def reading(self, tokens: Sequence[int]) -> Trial:
        """With an empty cache, of copies of the newest hidden row."""
        newest = self._hidden.rows(self._hidden.stop - 1, self._hidden.stop)
        rows = self.head.enter([mx.repeat(it, len(tokens), axis=0) for it in newest])
        fresh = ModelCache(self.head)

        def read() -> list[mx.array]:
            fresh.mark()
            self.head.read(rows[None], fresh.layers)
            fresh.advance(len(tokens))
            return fresh.arrays

        return read, fresh.reset

    def notice(self, tokens: Sequence[int]) -> str | None:
        return None if self.fault is None else f"the head {self.fault}"

    def _guess(self, previous: mx.array) -> mx.array:
        """The logits [1, V] of the present row after a token [1]."""
        parts = [it[self._row : self._row + 1] for it in self._parts]
        return self._sound(self.head.guess(previous, parts)) if self.head.walks else parts[0]

    def _sound(self, logits: mx.array) -> mx.array:
        """Of the target's vocabulary. Damaged weights must not reach the rule as a distribution."""
        return self._target.fitted(mx.nan_to_num(logits, neginf=-mx.inf))

    def _read(self, start: int, stop: int) -> None:
        """Read the rows of positions ``start`` to ``stop``, in place of the newest block's."""
        self._held.keep(start)
        if start < stop:
            rows = self.head.enter(self._hidden.rows(start, stop))
            self._held.cache.mark()
            self.head.read(rows[None], self._held.cache.layers)
            self._held.cache.advance(stop - start)
            self._held.add(start, stop)
        if self._judged:
            self._hidden.drop(stop - 1)

    def _judge(self, tokens: Sequence[int]) -> None:
        """Once there is enough text, find out how the head's files are to be read."""
        if self._judged or min(self._hidden.stop, len(tokens) - 1) - self._hidden.start <= LEAST:
            return
        self.fault = settle(self.head, self._hidden, tokens)
        self._judged = True
        self._held.keep(0)


class BlockDrafter(ChainDrafter):
    """Drafts the tokens of a block: at once where there is a kernel for that, else as a chain's."""

    def __init__(self, stepper: BlockModel, recent: RecentAcceptance) -> None:
        super().__init__(stepper, recent)
        self._model = stepper

    def propose(self, context: Context, depth: int) -> Proposal | None:
        if context.walks is not None:
            walked = self._model.walked(context.tokens, depth, context.walks)
            if walked is not None:
                self._asked = len(context.tokens)
                context.dispatch(*(it for it in walked if it is not None))
                return Proposal(*walked)
        return super().propose(context, depth)
