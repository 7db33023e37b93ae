"""Where two ways to compute the same text may part: at choices that rounding can turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import mlx.core as mx

from .models import Pair
from .models.cached import CachedModel
from .noise import TARGET, Noise
from .sampling import Sampling

NEAR_TIE = {mx.float32: 1e-4, mx.float16: 0.1, mx.bfloat16: 0.25}
"""By the precision of the logits: how far apart two of them may be and still swap places when a
pass has more rows. In 16 bits that is two steps of a logit around 16 to 32, or less."""


def epsilon(logits: mx.array, temperature: float) -> float:
    """How far apart two scores that were made of such logits may be and still swap places.

    Args:
        temperature: of the draw; 0: the scores are log-probabilities.
    """
    apart = NEAR_TIE.get(logits.dtype, NEAR_TIE[mx.bfloat16])
    return apart / temperature if temperature else apart


def scores(
    pair: Pair, tokens: Sequence[int], sampling: Sampling, kv_bits: int | None
) -> tuple[list[float], float]:
    """What the token after ``tokens`` is chosen by, [V] in float32, and the near tie's epsilon."""
    target = CachedModel(pair.target.module, pair.vocabulary, kv_bits=kv_bits)
    logits = target.logits(mx.array([*tokens], mx.uint32), rows=1)
    row = sampling.scores(logits.astype(mx.float32))
    if sampling.seed is not None:
        row = row + Noise(sampling.seed, 0, len(tokens), 1, pair.vocabulary).gumbel(TARGET)
    return cast("list[float]", row[0].tolist()), epsilon(logits, sampling.temperature)
