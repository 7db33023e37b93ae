"""Passes of Mamba-2 with pending rows, and what they must give."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from harness.mlxlm_kernels import ssm_rows

from macspec.metal.kernel import Launch
from macspec.metal.mamba2 import Rows, mamba2_call, reference

CLOSE = {mx.float32: 2e-6, mx.float16: 1e-3, mx.bfloat16: 8e-3}
"""Largest error, in units of the largest value: a few roundings of the type."""


@dataclass(frozen=True)
class Scan:
    """A pass over rows, with those of the pass before pending."""

    state: mx.array
    before: Rows
    kept: int
    rows: Rows

    @property
    def call(self) -> tuple[list[mx.array], Launch]:
        return mamba2_call(self.state, self.before, self.kept, self.rows)

    @property
    def expected(self) -> tuple[mx.array, mx.array]:
        return reference(self.state, self.before, self.kept, self.rows)

    def by_rows(self, *, fused: bool = True) -> tuple[mx.array, mx.array]:
        """By mlx-lm's kernel, row after row: outputs, and the state after the kept rows."""
        _, state = ssm_rows(self.before, self.kept, self.state, fused=fused)
        out, _ = ssm_rows(self.rows, self.rows.x.shape[1], state, fused=fused)
        return out, state


def scan(
    rows: int,
    kept: int = 0,
    *,
    pending: int | None = None,
    heads: int = 8,
    groups: int = 2,
    width: int = 8,
    state: int = 64,
    dtype: mx.Dtype = mx.float32,
    weights: mx.Dtype | None = None,
    seed: int = 0,
) -> Scan:
    """A random pass.

    Args:
        pending: rows of the pass before; None: those that are kept, and two.
        weights: the type of ``a_log`` and ``d``; None: float32 and ``dtype``.
    """
    random = np.random.default_rng([rows, kept, heads, groups, width, state, seed])

    def normal(*shape: int) -> mx.array:
        return mx.array(random.standard_normal(shape, np.float32))

    a_log, d = normal(heads).astype(weights or mx.float32), normal(heads).astype(weights or dtype)

    def some(count: int) -> Rows:
        return Rows(
            normal(1, count, heads, width).astype(dtype),
            normal(1, count, groups, state).astype(dtype),
            normal(1, count, groups, state).astype(dtype),
            mx.abs(normal(1, count, heads)),
            a_log,
            d,
        )

    now = some(rows)
    before = some(kept + 2 if pending is None else pending) if pending != 0 else now
    return Scan(normal(1, heads, width, state), before, kept, now)


def close(found: mx.array, right: mx.array) -> bool:
    """Whether the error is a few roundings of the type."""
    if found.shape != right.shape or found.dtype != right.dtype:
        return False
    a, b = found.astype(mx.float32), right.astype(mx.float32)
    largest = mx.maximum(mx.max(mx.abs(b)), 1)
    return bool(mx.max(mx.abs(a - b)) <= CLOSE[right.dtype] * largest)
