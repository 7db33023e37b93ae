"""The draft model: a smaller model with the target's vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from ..depth import BUCKETS, MAX_DEPTH, Offer
from ..models.cached import CachedModel
from .drafter import Context, Proposal

RECENT = 0.3
"""Weight of the newest round in the recent acceptance."""


class DraftModel:
    """Drafts a chain token by token.

    Tokens that it did not draft itself are read when they are needed, in one batched pass (in
    chunks if there are many), so rounds without it cost nothing.

    Args:
        model: the draft model with a cache of its own.
        context: positions that the model can handle.
    """

    name = "draft"

    def __init__(self, model: CachedModel, context: int) -> None:
        self.model = model
        self.context = context
        self._recent = 0.6

    def offer(self, tokens: Sequence[int]) -> Offer:
        # The last drafted token is never read, so the cache ends one short of it.
        room = min(max(self.context - len(tokens) + 1, 0), MAX_DEPTH)
        bucket = min(int(BUCKETS * self._recent), BUCKETS - 1)
        return Offer(self.name, room, bucket, len(tokens) - self.model.length)

    def observe(self, drafted: int, accepted: int) -> None:
        if drafted:
            self._recent += RECENT * (accepted / drafted - self._recent)

    def propose(self, context: Context, depth: int) -> Proposal | None:
        sampling = context.sampling
        last = self.model.unread(context.tokens)
        tokens: list[mx.array] = []
        log_q: list[mx.array] = []
        for step in range(depth):
            drafted = mx.concatenate(tokens) if tokens else None
            scores = sampling.scores(
                self.model.logits(last, 1), sampling.recent(context.tokens, drafted, 1)
            )
            drawn = scores if context.noise is None else scores + context.noise[step]
            last = mx.argmax(drawn, axis=-1)
            context.dispatch(last)
            tokens.append(last)
            log_q.append(scores)
        sampled = context.noise is not None and context.keeps_q
        return Proposal(mx.concatenate(tokens), mx.concatenate(log_q) if sampled else None)

    def rollback(self, length: int) -> None:
        self.model.rollback(length)
