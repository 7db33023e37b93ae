"""The draft model: a smaller model with the target's vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from ..models.cached import PASS_TAIL, CachedModel
from ..sampling import Sampling
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

    def guesses(self, tokens: Sequence[int], begin: int, sampling: Sampling) -> list[float]:
        """Read all tokens but the last, and say of each from ``begin`` on, where the token before
        is the first unread one, how likely it would have been accepted, had it been drafted.

        Greedy: whether it is the best guess. Sampled: its probability over the expected one, an
        estimate of what the two distributions have in common that needs no pass of the target.
        """
        assert self.length == begin - 1
        likely: list[float] = []
        while self.length < len(tokens) - 1:
            first, end = self.length, min(self.length + PASS_TAIL, len(tokens) - 1)
            read, following = (
                mx.array(list(it), mx.uint32)
                for it in (tokens[first:end], tokens[first + 1 : end + 1])
            )
            likely += _likely(self.model.logits(read, end - first), following, sampling)
        return likely

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


def _likely(logits: mx.array, tokens: mx.array, sampling: Sampling) -> list[float]:
    scores = sampling.weights(logits)
    if sampling.greedy:
        shares = mx.argmax(scores, axis=-1) == tokens
    else:
        q = mx.softmax(scores, axis=-1)
        found = mx.take_along_axis(q, tokens[:, None], axis=-1)[:, 0]
        shares = mx.minimum(found / mx.sum(q * q, axis=-1), 1)
    found_shares: Any = shares.astype(mx.float32).tolist()
    return list(found_shares)
