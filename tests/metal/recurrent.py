"""Passes of gated delta nets and of Mamba-2 with pending rows, and what they must give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from harness.mlxlm_kernels import delta_rows, ssm_rows
from mlx_lm.models.gated_delta import normalize_qk

from macspec.metal import gated_delta, mamba2
from macspec.metal.kernel import Launch

CLOSE = {mx.float32: 2e-6, mx.float16: 1e-3, mx.bfloat16: 8e-3}
"""Largest error, in units of the largest value: a few roundings of the type."""

Normal = Callable[..., mx.array]


def close(found: mx.array, right: mx.array) -> bool:
    """Whether the error is a few roundings of the type."""
    if found.shape != right.shape or found.dtype != right.dtype:
        return False
    a, b = found.astype(mx.float32), right.astype(mx.float32)
    largest = mx.maximum(mx.max(mx.abs(b)), 1)
    return bool(mx.max(mx.abs(a - b)) <= CLOSE[right.dtype] * largest)


@dataclass(frozen=True)
class Pass:
    """A pass over rows, with those of the pass before pending."""

    state: mx.array
    before: Any
    kept: int
    rows: Any

    @property
    def arguments(self) -> tuple[mx.array, Any, int, Any]:
        return self.state, self.before, self.kept, self.rows


class DeltaPass(Pass):
    @property
    def call(self) -> tuple[list[mx.array], Launch]:
        return gated_delta.gated_delta_call(*self.arguments)

    @property
    def expected(self) -> tuple[mx.array, mx.array]:
        return gated_delta.reference(*self.arguments)

    def by_mlx(self, *, fused: bool = True) -> tuple[mx.array, mx.array]:
        """By mlx-lm's kernels: outputs, and the state after the kept rows."""
        state = self.state
        if self.kept:
            _, state = delta_rows(self.before.first(self.kept), state, fused=fused)
        return delta_rows(self.rows, state, fused=fused)[0], state


class Scan(Pass):
    @property
    def call(self) -> tuple[list[mx.array], Launch]:
        return mamba2.mamba2_call(*self.arguments)

    @property
    def expected(self) -> tuple[mx.array, mx.array]:
        return mamba2.reference(*self.arguments)

    def by_rows(self, *, fused: bool = True) -> tuple[mx.array, mx.array]:
        """By mlx-lm's kernel, row after row: outputs, and the state after the kept rows."""
        _, state = ssm_rows(self.before, self.kept, self.state, fused=fused)
        out, _ = ssm_rows(self.rows, self.rows.x.shape[1], state, fused=fused)
        return out, state


def normal_of(*seed: int) -> Normal:
    """Normal variates of a shape, other ones at every call."""
    random = np.random.default_rng(seed)
    return lambda *shape: mx.array(random.standard_normal(shape, np.float32))


def pending_before(
    some: Callable[[int], Any], rows: int, kept: int, pending: int | None
) -> tuple[Any, Any]:
    """Rows of this pass and of the one before; ``pending`` None: those that stay, and two."""
    now = some(rows)
    if pending == 0:
        return now, now
    return now, some(kept + 2 if pending is None else pending)


def delta_pass(
    rows: int,
    kept: int = 0,
    *,
    pending: int | None = None,
    key_heads: int = 2,
    heads: int = 4,
    width: int = 64,
    value_width: int = 16,
    by_column: bool = False,
    dtype: mx.Dtype = mx.float32,
    seed: int = 0,
) -> DeltaPass:
    """A random pass of a gated delta net; ``pending`` as for ``pending_before``."""
    normal = normal_of(rows, kept, key_heads, heads, width, value_width, seed)

    def some(count: int) -> gated_delta.Rows:
        q, k = (normal(1, count, key_heads, width) for _ in range(2))
        q, k = normalize_qk(q, k, inv_scale=width**-0.5, eps=1e-6)
        gates = (heads, width) if by_column else (heads,)
        return gated_delta.Rows(
            (q * width).astype(dtype),
            k.astype(dtype),
            normal(1, count, heads, value_width).astype(dtype),
            mx.sigmoid(normal(1, count, *gates) + 1),
            mx.sigmoid(normal(1, count, heads)).astype(dtype),
        )

    now, before = pending_before(some, rows, kept, pending)
    return DeltaPass(normal(1, heads, value_width, width), before, kept, now)


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
    """A random pass of Mamba-2; ``pending`` as for ``pending_before``.

    Args:
        weights: the type of ``a_log`` and ``d``; None: float32 and ``dtype``.
    """
    normal = normal_of(rows, kept, heads, groups, width, state, seed)
    a_log, d = normal(heads).astype(weights or mx.float32), normal(heads).astype(weights or dtype)

    def some(count: int) -> mamba2.Rows:
        return mamba2.Rows(
            normal(1, count, heads, width).astype(dtype),
            normal(1, count, groups, state).astype(dtype),
            normal(1, count, groups, state).astype(dtype),
            mx.abs(normal(1, count, heads)),
            a_log,
            d,
        )

    now, before = pending_before(some, rows, kept, pending)
    return Scan(normal(1, heads, width, state), before, kept, now)
