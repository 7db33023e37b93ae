"""Passes of gated delta nets with pending rows, and what they must give."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from harness.mlxlm_kernels import delta_rows
from mlx_lm.models.gated_delta import normalize_qk

from macspec.metal.gated_delta import Rows, gated_delta_call, reference
from macspec.metal.kernel import Launch


@dataclass(frozen=True)
class Pass:
    """A pass over rows, with those of the pass before pending."""

    state: mx.array
    before: Rows
    kept: int
    rows: Rows

    @property
    def call(self) -> tuple[list[mx.array], Launch]:
        return gated_delta_call(self.state, self.before, self.kept, self.rows)

    @property
    def expected(self) -> tuple[mx.array, mx.array]:
        return reference(self.state, self.before, self.kept, self.rows)

    def by_mlx(self, *, fused: bool = True) -> tuple[mx.array, mx.array]:
        """By mlx-lm's kernels: outputs, and the state after the kept rows."""
        state = self.state
        if self.kept:
            _, state = delta_rows(self.before.first(self.kept), state, fused=fused)
        return delta_rows(self.rows, state, fused=fused)[0], state


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
) -> Pass:
    """A random pass.

    Args:
        pending: rows of the pass before; None: those that are kept, and two.
    """
    random = np.random.default_rng([rows, kept, key_heads, heads, width, value_width, seed])

    def normal(*shape: int) -> mx.array:
        return mx.array(random.standard_normal(shape, np.float32))

    def some(count: int) -> Rows:
        q, k = (normal(1, count, key_heads, width) for _ in range(2))
        q, k = normalize_qk(q, k, inv_scale=width**-0.5, eps=1e-6)
        gates = (heads, width) if by_column else (heads,)
        return Rows(
            (q * width).astype(dtype),
            k.astype(dtype),
            normal(1, count, heads, value_width).astype(dtype),
            mx.sigmoid(normal(1, count, *gates) + 1),
            mx.sigmoid(normal(1, count, heads)).astype(dtype),
        )

    now = some(rows)
    before = some(kept + 2 if pending is None else pending) if pending != 0 else now
    return Pass(normal(1, heads, value_width, width), before, kept, now)
