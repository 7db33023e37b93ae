"""Rules that draw the target's token at every row and keep the draft while it agrees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import mlx.core as mx

from ..noise import TARGET, Noise
from .rule import Verdict


def first_mismatch(drawn: mx.array, drafted: mx.array) -> Verdict:
    """Keep the drafted tokens [K] that equal the drawn [K + 1], and emit the next drawn one."""
    if drafted.shape[0] == 0:
        return Verdict(mx.array(0, mx.int32), drawn[0])
    agree = (drawn[:-1] == drafted).astype(mx.int32)
    accepted = mx.sum(mx.cumprod(agree)).astype(mx.int32)
    return Verdict(accepted, mx.take(drawn, accepted))


class Match:
    """The rule of mlx-lm and llama.cpp, exact for any drafter and any policy.

    Only the target's own draws are emitted. A draft model proposes its most likely token: of all
    point masses the one accepted most often.
    """

    name = "match"
    keeps_q = False

    def draft_noise(self, noise: Noise) -> Callable[[], mx.array] | None:
        return None

    def accept(
        self, scores: mx.array, drafted: mx.array, log_q: mx.array | None, noise: Noise | None
    ) -> Verdict:
        if noise is not None:
            scores = scores + noise.gumbel(TARGET)[: scores.shape[0]]
        return first_mismatch(mx.argmax(scores, axis=-1), drafted)


class Keyed(Match):
    """The reproducible rule: match, with the drafter drawing from the target's own noise.

    The token at position t is argmax(log p_t + g_t) with Gumbel noise g_t keyed by (seed, t), so
    the text is a function of seed and prompt alone: the same with speculation on or off, for any
    drafter and any depth. A draft model proposes argmax(log q_t + g_t) with the same g_t; the two
    then agree with probability sum_x 1 / sum_y max(p_y / p_x, q_y / q_x), at least
    (1 - TV) / (1 + TV) (Daliri, Musco and Suresh 2024, arXiv:2408.07978).
    """

    name = "keyed"

    def draft_noise(self, noise: Noise) -> Callable[[], mx.array] | None:
        return partial(noise.gumbel, TARGET)


def forced(answer: Sequence[int], drafted: mx.array, verdict: Verdict) -> Verdict:
    """The verdict as if the target had chosen ``answer``, for measuring look-ups and the controller
    (not a draft model) at the real cost, on text that no model at hand could write.

    Args:
        answer: what follows from this pass on; shorter than the K + 1 rows only at its end.
        drafted: [K] uint32.
        verdict: the real one, which is computed all the same.
    """
    rows = drafted.shape[0] + 1
    chosen = [*answer[:rows], *[answer[-1]] * (rows - len(answer))]
    (drawn,) = mx.depends([mx.array(chosen, mx.uint32)], [verdict.accepted, verdict.token])
    return first_mismatch(drawn, drafted)
