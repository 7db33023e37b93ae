"""The draft model: a smaller model with the target's vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from ..models.cached import CachedModel
from .chain import Trial
from .drafter import Dispatch


class DraftModel:
    """Steps a draft model.

    Args:
        context: positions that the model can handle.
    """

    name = "draft"
    at_once = False

    def __init__(self, model: CachedModel, context: int) -> None:
        self.model = model
        self.context = context

    @property
    def length(self) -> int:
        return self.model.length

    def room(self, tokens: Sequence[int]) -> int:
        # The last drafted token is never read, so the cache ends one short of it.
        return max(self.context - len(tokens) + 1, 0)

    def ready(self, tokens: Sequence[int]) -> bool:
        return True

    def unread(self, tokens: Sequence[int]) -> int:
        return len(tokens) - self.model.length

    def read_next(self, tokens: Sequence[int], boundaries: Sequence[int] = ()) -> None:
        self.model.read_next(tokens, boundaries)

    def first(self, tokens: Sequence[int], depth: int, dispatch: Dispatch) -> mx.array:
        return self.model.logits(self.model.unread(tokens), 1, dispatch)

    def next(self, token: mx.array, dispatch: Dispatch) -> mx.array:
        return self.model.logits(token, 1)

    def rollback(self, length: int) -> None:
        self.model.rollback(length)

    def reading(self, tokens: Sequence[int]) -> Trial:
        model, length = self.model, self.length

        def read() -> Sequence[mx.array]:
            model.read(tokens)
            return model.cache.arrays

        return read, lambda: model.rollback(length)

    def notice(self, tokens: Sequence[int]) -> str | None:
        if self.room(tokens):
            return None
        return f"the draft model's context of {self.context} tokens is full; it no longer drafts"
