"""Draft models that guess all tokens of a round at once behind mask tokens (PARD, An et al. 2025,
arXiv:2504.18583)."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from ..models.cached import CachedModel
from .chain import Trial
from .drafter import Dispatch
from .model import DraftModel


class MaskedModel:
    """Steps through what a draft model guesses in one pass over the unread tokens and masks.

    Args:
        context: positions that the model can handle.
        mask: the id of the mask token.
    """

    name = DraftModel.name
    at_once = True

    def __init__(self, model: CachedModel, context: int, mask: int) -> None:
        self.model = model
        self.context, self.mask = context, mask
        self._plain = DraftModel(model, context)
        self._committed = 0
        self._rows: list[mx.array] = []
        """The logits [1, V] of the tokens that the newest pass guessed, as far as not asked for."""

    @property
    def length(self) -> int:
        return min(self.model.length, self._committed)

    def room(self, tokens: Sequence[int]) -> int:
        return self._plain.room(tokens)

    def ready(self, tokens: Sequence[int]) -> bool:
        return True

    def unread(self, tokens: Sequence[int]) -> int:
        return len(tokens) - self.length

    def read_next(self, tokens: Sequence[int], boundaries: Sequence[int] = ()) -> None:
        self.rollback(self.length)
        self.model.read_next(tokens, boundaries)
        self._committed = self.model.length

    def first(self, tokens: Sequence[int], depth: int, dispatch: Dispatch) -> mx.array:
        # At least one token is read: its row is the first guess.
        self.rollback(min(self.length, len(tokens) - 1))
        unread = self.model.unread(tokens)
        masks = mx.full((depth - 1,), self.mask, mx.uint32)
        logits = self.model.logits(mx.concatenate([unread, masks]), depth, dispatch)
        self._committed = len(tokens)
        self._rows = [logits[at : at + 1] for at in range(depth)]
        return self._rows.pop(0)

    def next(self, token: mx.array, dispatch: Dispatch) -> mx.array:
        return self._rows.pop(0)

    def rollback(self, length: int) -> None:
        self._committed = min(self._committed, length)
        self.model.rollback(self._committed)

    def reading(self, tokens: Sequence[int]) -> Trial:
        self.rollback(self.length)
        return self._plain.reading(tokens)

    def notice(self, tokens: Sequence[int]) -> str | None:
        return self._plain.notice(tokens)
