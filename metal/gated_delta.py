"""Gated delta nets over the rows that the pass before left pending, and over new ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import mlx.core as mx
from mlx_lm.models import gated_delta as mlx_lm

from .kernel import TYPES, Kernel, Launch, constant, dtype_name

NEW = ("q", "new_k", "new_v", "new_g", "new_beta")
KERNEL = Kernel(
    "gated_delta",
    inputs=("state", "old_k", "old_v", "old_g", "old_beta", "kept", *NEW),
    outputs=("y", "after"),
)

MOST_WIDTH = 256
"""Of keys."""
COLUMNS = 32
"""Of the state that a lane holds at most, if other lanes can take the rest."""
THREADS = 64
"""Of a threadgroup."""
LEAST_HEADS = 8
"""Fewer would change the address spaces of inputs."""


class Rows(NamedTuple):
    """Rows of one layer, as the recurrence consumes them.

    Attributes:
        q, k: [1, rows, key heads, width].
        v: [1, rows, heads, value width].
        g: float32 [1, rows, heads], or [1, rows, heads, width] where every column decays by itself.
        beta: [1, rows, heads].
    """

    q: mx.array
    k: mx.array
    v: mx.array
    g: mx.array
    beta: mx.array

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Rows:
        """From the arguments of mlx-lm's ``gated_delta_update``.

        Raises:
            ValueError: there are several texts, or rows that do not count.
        """
        q, a, dt_bias = (arguments[name] for name in ("q", "a", "dt_bias"))
        if q.shape[0] != 1 or arguments["mask"] is not None:
            raise ValueError("not the rows of one text")
        beta = mx.sigmoid(arguments["b"])
        if arguments["allow_neg_eigval"]:
            beta = beta * 2.0
        if (bound := arguments["lower_bound"]) is None:
            g = mlx_lm.compute_g(arguments["A_log"], a, dt_bias)
        else:
            g = mlx_lm.compute_lower_bound_g(arguments["A_log"], a, dt_bias, bound)
        # Often a slice, which MLX would copy for both of the launches that read it.
        v = mx.contiguous(arguments["v"])
        return cls(q, arguments["k"], v, g, beta)

    @property
    def shape(self) -> GatedDelta:
        """What the kernel sees of them, but for their number."""
        sizes = self.k.shape[2], self.v.shape[2], self.k.shape[3], self.v.shape[3]
        return GatedDelta(*sizes, self.g.ndim == 4, self.q.dtype)

    @property
    def zeros(self) -> mx.array:
        """The state at the start of a text."""
        shape = self.shape
        return mx.zeros((1, shape.heads, shape.value_width, shape.width), mx.float32)

    def first(self, count: int) -> Rows:
        """Some of the rows."""
        return Rows(*(it[:, :count] for it in self))


@dataclass(frozen=True, slots=True)
class GatedDelta:
    """The recurrence as the layers of a model ask for it."""

    key_heads: int
    heads: int
    width: int
    value_width: int
    by_column: bool
    """Whether every column of the state decays by itself."""
    dtype: mx.Dtype

    def __str__(self) -> str:
        gates = ", gates by column" if self.by_column else ""
        sizes = " and ".join(map(str, dict.fromkeys((self.width, self.value_width))))
        return f"{self.heads}:{self.key_heads} heads of {sizes}{gates}, {dtype_name(self.dtype)}"

    @property
    def lanes(self) -> int:
        """Lanes that share a row of the state: the fewest that can hold it and fill simdgroups."""
        lanes = 1
        while lanes < 32 and (
            self.width > COLUMNS * lanes or self.value_width * lanes % 32 or self.width % lanes
        ):
            lanes *= 2
        return lanes

    @property
    def unsupported(self) -> str | None:
        """Why the kernel does not take it; None if it does."""
        if self.width % 32 or not 0 < self.width <= MOST_WIDTH:
            return f"keys of {self.width}: the kernel takes multiples of 32 up to {MOST_WIDTH}"
        if self.heads % self.key_heads or self.heads < LEAST_HEADS:
            return (
                f"{self.heads} heads for {self.key_heads} of keys: the kernel takes {LEAST_HEADS} "
                "or more, evenly shared"
            )
        if self.dtype not in TYPES:
            return f"gated delta nets in {dtype_name(self.dtype)}: the kernel takes floats"
        return None


def gated_delta_call(
    state: mx.array | None, before: Rows, kept: int, rows: Rows
) -> tuple[list[mx.array], Launch]:
    """The kernel's inputs and how it is launched; arguments as for `gated_delta`."""
    shape = rows.shape
    held = rows.zeros if state is None else state
    width = shape.value_width * shape.lanes
    launch = Launch(
        grid=(width, shape.heads, 1),
        threadgroup=(min(THREADS, width), 1, 1),
        constants=(
            ("T", shape.dtype),
            ("KEY_HEADS", shape.key_heads),
            ("HEADS", shape.heads),
            ("WIDTH", shape.width),
            ("VALUE_WIDTH", shape.value_width),
            ("BY_COLUMN", shape.by_column),
            ("LANES", shape.lanes),
        ),
        shapes=(rows.v.shape, held.shape),
        dtypes=(shape.dtype, mx.float32),
    )
    return [held, *before[1:], constant(kept, mx.int32), *rows], launch


def gated_delta(
    state: mx.array | None, before: Rows, kept: int, rows: Rows
) -> tuple[mx.array, mx.array]:
    """Outputs of rows, and the state before them, on the GPU in one launch.

    Args:
        state: float32 [1, heads, value width, width], from before the pending rows;
            None: at the start of a text.
        before: the pending rows.
        kept: how many of them count, the first ones.
        rows: the new rows.

    Returns:
        [1, rows, heads, value width] in the type of ``rows.q``, and the state after ``kept`` rows.
    """
    y, after = KERNEL(*gated_delta_call(state, before, kept, rows))
    return y, after


def reference(
    state: mx.array | None, before: Rows, kept: int, rows: Rows
) -> tuple[mx.array, mx.array]:
    """``gated_delta`` by mlx-lm's portable operations."""
    state = rows.zeros if state is None else state
    if kept:
        _, state = mlx_lm.gated_delta_ops(*before.first(kept), state)
    y, _ = mlx_lm.gated_delta_ops(*rows, state)
    return y, state


def by_mlx(state: mx.array, before: Rows, kept: int, rows: Rows) -> tuple[mx.array, mx.array]:
    """The same by the kernels that mlx-lm takes on a Mac, in two launches."""
    if kept:
        _, state = mlx_lm.gated_delta_kernel(*before.first(kept), state)
    y, _ = mlx_lm.gated_delta_kernel(*rows, state)
    return y, state
