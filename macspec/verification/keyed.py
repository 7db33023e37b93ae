"""Keyed: match, with the drafter drawing from the target's own noise.

The token at position t is argmax(log p_t + g_t) with Gumbel noise g_t keyed by (seed, t), so the
text is a function of seed and prompt alone: the same with speculation on or off, for any drafter
and any depth. A draft model proposes argmax(log q_t + g_t) with the same g_t; the two then agree
with probability sum_x 1 / sum_y max(p_y / p_x, q_y / q_x), at least (1 - TV) / (1 + TV) (Daliri,
Musco and Suresh 2024, arXiv:2408.07978).
"""

from __future__ import annotations

import mlx.core as mx

from ..noise import TARGET, Noise
from .match import Match


class Keyed(Match):
    """The reproducible rule."""

    name = "keyed"

    def draft_noise(self, noise: Noise) -> mx.array | None:
        return noise.gumbel(TARGET)
