"""Where two ways to compute the same text may part: at choices that rounding can turn."""

from __future__ import annotations

import mlx.core as mx

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
