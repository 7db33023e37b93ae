"""What the kernels that read rows of logits have in common: their arguments and their limits."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import mlx.core as mx

from macspec.noise import Noise
from macspec.sampling import Sampling

PARTS = ("noise", "rows")
MOST_ROWS = 33
MOST_WIDTH = 262_144
TYPES = (mx.float32, mx.float16, mx.bfloat16)
MOST_THREADS = 512
"""Of a threadgroup; more would leave too few registers for the eight bounds of the search."""
OFF = 2**32 - 1
"""A top-k that keeps everything."""


def supports(logits: mx.array) -> str | None:
    """Why the sampling kernels cannot read these logits [rows, V]; None if they can."""
    count, width = logits.shape
    if logits.dtype not in TYPES:
        return f"logits of {logits.dtype}: the kernels read float32, float16 and bfloat16"
    if count > MOST_ROWS:
        return f"{count} rows: the kernels take at most {MOST_ROWS}"
    if width > MOST_WIDTH:
        return f"{width} columns of logits: the kernels take at most {MOST_WIDTH}"
    return None


def adjusted(sampling: Sampling, logits: mx.array, recent: mx.array | None) -> mx.array:
    """Logits [rows, V] after bias and penalties, which the kernels do not apply."""
    if not sampling.logit_bias and not sampling.penalised:
        return logits
    return replace(sampling, temperature=0).scores(logits, recent)


def threads(width: int) -> int:
    """Of one threadgroup for a row of that width."""
    return min(MOST_THREADS, -(-width // 32) * 32)


def template(logits: mx.array, sampling: Sampling) -> tuple[tuple[str, Any], ...]:
    """The arguments that all of these kernels have."""
    width = logits.shape[-1]
    return (
        ("T", logits.dtype),
        ("THREADS", threads(width)),
        ("TRUNCATED", sampling.top_p < 1 or 0 < sampling.top_k < width),
    )


def place(noise: Noise | None, step: int = 0) -> mx.array:
    """Where noise is drawn: two words of the seed, position, number of the pass; [4] uint32."""
    words = (0, 0, 0, 0)
    if noise is not None:
        words = (noise.seed & 0xFFFFFFFF, noise.seed >> 32, noise.position + step, noise.draw)
    return mx.array(words, mx.uint32)


@lru_cache(maxsize=16)
def options(sampling: Sampling) -> mx.array:
    """1 / temperature, top-p, and how far below the best logit min-p cuts; [3] float32."""
    inverse = 1.0 if sampling.greedy else 1 / sampling.temperature
    floor = math.log(sampling.min_p) if sampling.min_p > 0 else -math.inf
    # A share that float32 rounds to 0 would leave not even the most likely token.
    return mx.array((inverse, max(sampling.top_p, 1e-30), floor), mx.float32)


@lru_cache(maxsize=16)
def limits(top_k: int, size: int) -> mx.array:
    """Top-k, and the first id that cannot be drawn; [2] uint32."""
    return mx.array((min(top_k or OFF, OFF), size), mx.uint32)
