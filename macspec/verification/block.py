"""Block verification (Sun et al. 2024, arXiv:2403.10444): judge a sampled chain as a whole.

With p_i, q_i the target's and the draft's distribution of the i-th token and x_1..x_K the draft,

    b_0 = 1,  b_i = min(1, b_{i-1} p_i(x_i) / q_i(x_i))
    r_i = sum_v max(b_i p_{i+1}(v) - q_{i+1}(v), 0)
    h_i = r_i / (r_i + 1 - b_i) for i < K,  h_K = b_K
    t   = max { i : u_i <= h_i }, 0 if there is none; u_i independent uniforms

and after x_1..x_t comes y ~ norm(max(b_t p_{t+1} - q_{t+1}, 0)), or y ~ p_{K+1} if t = K.
Whether x_k is verified must not depend on x_k itself, nor on what was drafted after it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from ..noise import ACCEPT, DRAFT, RESIDUAL, Noise
from .match import Match
from .rule import Verdict


def judge(p: Any, q: Any, drafted: Any, xp: Any = mx) -> tuple[Any, Any]:
    """The rule's two quantities.

    Args:
        p: [K + 1, V] target probabilities.
        q: [K, V] draft probabilities, positive at the drafted tokens.
        drafted: [K] ids.
        xp: ``mlx.core`` or ``numpy``.

    Returns:
        h [K], the chance that the i-th token is the last one kept if no later one is; and the
        unnormalised distribution [K + 1, V] of the token after i kept ones, i = 0..K.
    """
    depth = q.shape[0]
    column = drafted[:, None]
    ratio = xp.log(xp.take_along_axis(p[:-1], column, axis=-1)[:, 0]) - xp.log(
        xp.take_along_axis(q, column, axis=-1)[:, 0]
    )
    # log b is a walk with steps log(p/q), reflected at 0: its sum minus the highest sum so far.
    walk = xp.cumsum(ratio, axis=0)
    steps = xp.arange(depth)
    so_far = xp.where(steps[None] <= steps[:, None], walk[None], -xp.inf)
    b = xp.exp(walk - xp.maximum(xp.max(so_far, axis=1), 0))

    start = xp.concatenate([xp.ones_like(b[:1]), b[:-1]])
    residual = xp.maximum(start[:, None] * p[:-1] - q, 0)
    weights = xp.concatenate([residual, p[-1:]])
    r = xp.sum(residual[1:], axis=-1)
    # b = 1 and r = 0 means p = q from here: the next token is kept for certain.
    rest = r + (1 - b[:-1])
    h = xp.where(rest > 0, r / xp.where(rest > 0, rest, 1), 1)
    return xp.concatenate([h, b[-1:]]), weights


class Block:
    """The fast rule: never below token rejection, and exact for the same reasons."""

    name = "block"
    keeps_q = True

    def draft_noise(self, noise: Noise) -> Callable[[], mx.array] | None:
        return partial(noise.gumbel_rows, DRAFT, noise.rows - 1)

    def accept(
        self, scores: mx.array, drafted: mx.array, log_q: mx.array | None, noise: Noise | None
    ) -> Verdict:
        if noise is None or log_q is None:
            # On a point mass block verification and match are the same rule.
            return Match().accept(scores, drafted, None, noise)
        depth = drafted.shape[0]
        p = mx.softmax(scores, axis=-1)
        h, weights = judge(p, mx.softmax(log_q, axis=-1), drafted)
        kept = mx.where(noise.uniform(ACCEPT)[:depth] <= h, mx.arange(1, depth + 1), 0)
        accepted = mx.max(kept).astype(mx.int32)
        weight = mx.take(weights, accepted, axis=0)
        weight = mx.where(mx.any(weight > 0), weight, mx.take(p, accepted, axis=0))
        token = mx.argmax(mx.log(weight) + noise.gumbel_row(RESIDUAL))
        return Verdict(accepted, token)
