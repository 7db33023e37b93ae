"""Assistants as drafters: heads that attend to what the target itself has read."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from ..heads.agreement import LEAST, Agreement
from ..heads.assistant import Assistant, SharedRows
from ..models.cached import CachedModel
from .chain import Trial
from .drafter import Dispatch


class AssistantModel:
    """Steps an assistant. It has no cache, so nothing has to be read or taken back: a round begins
    at the target's newest row, and all its steps see what the target's caches hold.

    Args:
        target: its passes show the hidden rows that the head wants.
        context: positions that the target can handle.
    """

    at_once = False

    def __init__(self, head: Assistant, target: CachedModel, context: int) -> None:
        assert target.hidden is not None
        self.head, self.name = head, head.name
        self.context = context
        self.fault: str | None = None
        """What seems to be wrong with its files, in half a sentence."""
        self._target, self._hidden = target, target.hidden
        self._seen: list[SharedRows] = []
        self._row = mx.zeros((0, 0))
        """What the next step takes, [1, width]."""
        self._judged = False

    @property
    def length(self) -> int:
        return self._target.length

    def room(self, tokens: Sequence[int]) -> int:
        return max(self.context - len(tokens), 0)

    def ready(self, tokens: Sequence[int]) -> bool:
        return self._hidden.start <= len(tokens) - 2 < self._hidden.stop

    def unread(self, tokens: Sequence[int]) -> int:
        return 1

    def read_next(self, tokens: Sequence[int], boundaries: Sequence[int] = ()) -> None:
        """Nothing: the target does."""

    def first(self, tokens: Sequence[int], depth: int, dispatch: Dispatch) -> mx.array:
        last = len(tokens) - 1
        self._judge(tokens)
        self._row = self.head.enter(self._hidden.rows(last - 1, last))
        if self._judged:
            self._hidden.drop(last - 1)
        self._seen = self.head.shared(self._target.cache.layers, last)
        return self.next(mx.array([tokens[-1]], mx.uint32), dispatch)

    def next(self, token: mx.array, dispatch: Dispatch) -> mx.array:
        embedded = self._hidden.tap.embedding(token)
        out = self.head(self._row[None], embedded[None], self._seen)[0]
        self._row = self.head.onward(out)
        # Weights that are damaged must not reach the rule as a distribution.
        return self._target.fitted(mx.nan_to_num(self.head.logits(out), neginf=-mx.inf))

    def rollback(self, length: int) -> None:
        """Nothing: the target's caches follow."""

    def reading(self, tokens: Sequence[int]) -> Trial:
        return list, lambda: None

    def notice(self, tokens: Sequence[int]) -> str | None:
        return None if self.fault is None else f"the head drafts badly: {self.fault}"

    def _judge(self, tokens: Sequence[int]) -> None:
        """Once there is enough text, find out whether its guesses are ever the target's."""
        if not self._judged:
            found = Agreement(self.head, self._hidden, tokens, self._target.cache.layers)
            if found.count >= LEAST:
                self.fault = found.settle()
                self._judged = True
