"""Where two replies that should be equal part, and whether rounding explains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import mlx.core as mx

from .models import Pair
from .models.cached import CachedModel
from .noise import TARGET, Noise
from .sampling import Sampling

NEAR_TIE = {mx.float32: 1e-4, mx.float16: 0.1, mx.bfloat16: 0.25}
"""By the precision of the logits: how far apart two of them may be and still swap places when a
pass has more rows. In 16 bits that is two steps of a logit around 16 to 32, or less."""


@dataclass(frozen=True, slots=True)
class Fork:
    """Where two replies that should be equal part, and how close the choice was."""

    position: int
    """Index in the reply of the first token that differs."""
    plain: int | None
    """The token without speculation; None: that reply was over."""
    speculative: int | None
    gap: float | None
    """Best score minus the lower score of the two tokens; None if a reply only ended early."""
    epsilon: float

    @property
    def near_tie(self) -> bool:
        """Whether rounding explains it."""
        return self.gap is not None and self.gap <= self.epsilon


def first_difference(plain: tuple[int, ...], speculative: tuple[int, ...]) -> int | None:
    """Index of the first token that differs, a missing one included; None if all are equal."""
    pairs = zip(plain, speculative, strict=False)
    different = (at for at, (one, other) in enumerate(pairs) if one != other)
    shorter = min(len(plain), len(speculative))
    end = None if len(plain) == len(speculative) else shorter
    return next(different, end)


def explain(
    position: int,
    plain: tuple[int, ...],
    speculative: tuple[int, ...],
    scores: list[float],
    epsilon: float,
) -> Fork:
    """The fork at ``position``, given the scores [V] that the token there is chosen by."""
    one = plain[position] if position < len(plain) else None
    other = speculative[position] if position < len(speculative) else None
    gap = None
    if one is not None and other is not None:
        gap = max(scores) - min(scores[one], scores[other])
    return Fork(position, one, other, gap, epsilon)


def scores(
    pair: Pair, tokens: Sequence[int], sampling: Sampling, kv_bits: int | None
) -> tuple[list[float], float]:
    """What the token after ``tokens`` is chosen by, [V] in float32, and the near tie's epsilon."""
    target = CachedModel(pair.target.module, pair.vocabulary, kv_bits=kv_bits)
    logits = target.logits(mx.array([*tokens], mx.uint32), rows=1)
    epsilon = NEAR_TIE.get(logits.dtype, NEAR_TIE[mx.bfloat16])
    row = sampling.scores(logits.astype(mx.float32))
    if sampling.seed is not None:
        row = row + Noise(sampling.seed, 0, len(tokens), 1, pair.vocabulary).gumbel(TARGET)
        epsilon /= sampling.temperature
    return cast("list[float]", row[0].tolist()), epsilon
