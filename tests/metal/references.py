"""What ``accept`` and ``draft_sample`` must give, in plain MLX."""

from __future__ import annotations

import mlx.core as mx

from macspec.metal.accept import BROKEN
from macspec.noise import DRAFT, TARGET, Noise, bits, row_key, to_gumbel
from macspec.sampling import Sampling
from macspec.verification import Block, Match, Verdict


def accept(
    sampling: Sampling,
    logits: mx.array,
    drafted: mx.array,
    log_q: mx.array | None,
    noise: Noise | None,
) -> Verdict:
    """``macspec.metal.accept.accept`` in plain MLX."""
    scores = sampling.scores(logits)
    rule = Match() if log_q is None else Block()
    if log_q is not None:
        missing = max(scores.shape[-1] - log_q.shape[-1], 0)
        log_q = mx.pad(log_q, [(0, 0), (0, missing)], constant_values=-mx.inf)
        log_q = log_q[:, : scores.shape[-1]]
    verdict = rule.accept(scores, drafted, log_q, noise)
    broken = is_broken(logits)
    if log_q is not None and noise is not None and drafted.shape[0]:
        chances = mx.take_along_axis(log_q, drafted[:, None], axis=-1)
        broken = broken | ~mx.all(chances > -mx.inf)
    accepted, token = or_broken(broken, verdict)
    return Verdict(accepted, token)


def is_broken(logits: mx.array) -> mx.array:
    top = mx.max(logits.astype(mx.float32), axis=-1)
    return mx.any(mx.isnan(logits)) | ~mx.all(mx.abs(top) < mx.inf)


def or_broken(broken: mx.array, verdict: Verdict) -> tuple[mx.array, mx.array]:
    return (
        mx.where(broken, BROKEN, verdict.accepted).astype(mx.int32),
        mx.where(broken, 0, verdict.token).astype(mx.uint32),
    )


def draft_sample(
    sampling: Sampling,
    logits: mx.array,
    noise: Noise | None,
    step: int,
    *,
    keeps_q: bool,
) -> tuple[mx.array, mx.array | None]:
    """``macspec.metal.accept.draft_sample`` in plain MLX."""
    width = logits.shape[-1]
    scores = sampling.scores(logits)
    drawn = scores
    if noise is not None:
        stream, draw = (DRAFT, noise.draw) if keeps_q else (TARGET, 0)
        keys = mx.array([row_key(noise.seed, stream, noise.position + step, draw)], mx.uint32)
        drawn = scores + to_gumbel(bits(keys, mx.arange(width, dtype=mx.uint32)))
    top = mx.max(logits.astype(mx.float32))
    sound = (mx.abs(top) < mx.inf) & ~mx.any(mx.isnan(logits))
    token = mx.where(sound, mx.argmax(drawn, axis=-1), 0).astype(mx.uint32)
    if noise is None or not keeps_q:
        return token, None
    return token, mx.where(sound, scores, mx.nan)
