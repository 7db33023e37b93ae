"""Match: draw the target's token at every row and keep the draft while it agrees.

Exact for any drafter and any policy, because only the target's own draws are emitted. The rule of
mlx-lm and llama.cpp.
"""

from __future__ import annotations

import mlx.core as mx

from ..noise import TARGET, Noise
from .rule import Verdict


def first_mismatch(drawn: mx.array, drafted: mx.array) -> Verdict:
    """Keep the drafted tokens [K] that equal the drawn [K + 1], and emit the next drawn one."""
    agree = (drawn[:-1] == drafted).astype(mx.int32)
    accepted = mx.sum(mx.cumprod(agree)).astype(mx.int32)
    return Verdict(accepted, mx.take(drawn, accepted))


class Match:
    """A draft model proposes its most likely token: of all point masses the best accepted one."""

    name = "match"
    keeps_q = False

    def draft_noise(self, noise: Noise) -> mx.array | None:
        return None

    def accept(
        self, scores: mx.array, drafted: mx.array, log_q: mx.array | None, noise: Noise | None
    ) -> Verdict:
        if noise is not None:
            scores = scores + noise.gumbel(TARGET)[: scores.shape[0]]
        return first_mismatch(mx.argmax(scores, axis=-1), drafted)
