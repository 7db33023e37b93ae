"""Mamba-2 over several rows: each state is read once and written once, and rolls back for nothing.

A pass leaves its rows pending: the state that it writes is that from before them. How many of them
stay is known when the next pass begins, which folds in those and gives the outputs of its own rows
in the same launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models import ssm

from .kernel import TYPES, Kernel, Launch, constant, dtype_name

KERNEL = Kernel(
    "mamba2",
    inputs=(
        *("x", "b", "c", "dt"),
        *("pending_x", "pending_b", "pending_dt", "kept"),
        *("a_log", "d", "state"),
    ),
    outputs=("out", "state_out"),
    strided=True,
)

STATES = (32, 64, 128, 256)
"""State sizes."""
LINES = 4
"""Of a state, held by one simdgroup; as in the kernel's text."""
SIMDGROUPS = 8
LEAST_HEADS = 8
"""Fewer would change the address spaces of inputs."""


@dataclass(frozen=True, slots=True)
class Mamba2:
    """The recurrence as the layers of a model ask for it."""

    heads: int
    groups: int
    width: int
    state: int
    dtype: mx.Dtype
    weights: tuple[mx.Dtype, mx.Dtype]
    """Types of ``a_log`` and ``d``."""
    mixed: bool = False
    """Whether ``x``, ``b`` and ``c`` differ in type."""

    def __str__(self) -> str:
        weights = " and ".join(map(dtype_name, self.weights))
        return (
            f"{self.heads}:{self.groups} heads of {self.width}, states of {self.state}, "
            f"{dtype_name(self.dtype)}, weights in {weights}"
        )

    @property
    def unsupported(self) -> str | None:
        """Why the kernel does not take it; None if it does."""
        if self.state not in STATES:
            return f"states of {self.state}: the kernel takes {', '.join(map(str, STATES))}"
        if self.width % LINES:
            return f"heads of {self.width}: the kernel takes multiples of {LINES}"
        if self.heads % self.groups or self.heads < LEAST_HEADS:
            return (
                f"{self.heads} heads in {self.groups} groups: the kernel takes even groups of "
                f"{LEAST_HEADS} heads or more"
            )
        if self.mixed or not {self.dtype, *self.weights} <= {*TYPES}:
            return f"{self}: the kernel takes floats of one type"
        return None


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """Rows of a layer: what the recurrence consumes.

    Attributes:
        x: [1, rows, heads, width].
        b, c: [1, rows, groups, state].
        dt: [1, rows, heads] float32, after softplus and limits.
        a_log, d: the layer's weights [heads].
    """

    x: mx.array
    b: mx.array
    c: mx.array
    dt: mx.array
    a_log: mx.array
    d: mx.array

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Rows:
        """From the arguments of mlx-lm's ``ssm_update``.

        Raises:
            ValueError: there are several texts, or rows that do not count.
        """
        x, b, c = (arguments[name] for name in ("hidden_states", "B", "C"))
        if x.shape[0] != 1 or not arguments["mask"] is arguments["lengths"] is None:
            raise ValueError("not the rows of one text")
        # mlx-lm's own, so that the bits are those of its one-row path.
        dt = ssm.compute_dt(arguments["dt"], arguments["dt_bias"], arguments["time_step_limit"])
        return cls(x, b, c, dt, arguments["A_log"], arguments["D"])

    @property
    def shape(self) -> Mamba2:
        """What the kernel sees of them, but for their number."""
        _, _, heads, width = self.x.shape
        _, _, groups, state = self.b.shape
        weights = self.a_log.dtype, self.d.dtype
        mixed = not self.x.dtype == self.b.dtype == self.c.dtype
        return Mamba2(heads, groups, width, state, self.x.dtype, weights, mixed)

    @property
    def zeros(self) -> mx.array:
        """The state at the start of a text."""
        shape = self.shape
        return mx.zeros((1, shape.heads, shape.width, shape.state))


def mamba2(
    state: mx.array | None, before: Rows, kept: int, rows: Rows
) -> tuple[mx.array, mx.array]:
    """Mamba-2 on the GPU.

    Args:
        state: [1, heads, width, state] float32, from before the pending rows; None: zeros.
        before: the pending rows; where there are none, any.
        kept: how many of them stay.
        rows: of this pass.

    Returns:
        The outputs of ``rows``, in the shape and type of ``x``; the state after the kept rows.
    """
    out, after = KERNEL(*mamba2_call(state, before, kept, rows))
    return out, after


def mamba2_call(
    state: mx.array | None, before: Rows, kept: int, rows: Rows
) -> tuple[list[mx.array], Launch]:
    """The inputs of the kernel and how it is launched."""
    held = rows.zeros if state is None else mx.contiguous(state)
    _, _, heads, width = rows.x.shape
    launch = Launch(
        grid=(32, width // LINES, heads),
        threadgroup=(32, SIMDGROUPS, 1),
        constants=(("T", rows.x.dtype), ("S", held.shape[-1])),
        shapes=(rows.x.shape, held.shape),
        dtypes=(rows.x.dtype, mx.float32),
    )
    own = rows.x, rows.b, rows.c, rows.dt
    pending = before.x, before.b, before.dt, constant(kept, mx.int32)
    return [*own, *pending, rows.a_log, rows.d, held], launch


def reference(
    state: mx.array | None, before: Rows, kept: int, rows: Rows
) -> tuple[mx.array, mx.array]:
    """``mamba2`` in plain MLX."""
    running = rows.zeros if state is None else state
    for row in range(kept):
        _, running = _one_row(before, row, running)
    after, out = running, []
    for row in range(rows.x.shape[1]):
        y, running = _one_row(rows, row, running)
        out.append(y)
    return mx.stack(out, axis=1), after


def _one_row(rows: Rows, row: int, state: mx.array) -> tuple[mx.array, mx.array]:
    """The output of a row, and the state after it."""
    x = rows.x[:, row].astype(mx.float32)
    shared = x.shape[1] // rows.b.shape[2]
    b, c = (mx.repeat(it[:, row].astype(mx.float32), shared, axis=1) for it in (rows.b, rows.c))
    dt = rows.dt[:, row, :, None]
    a = -mx.exp(rows.a_log.astype(mx.float32))[:, None]
    state = mx.exp(a * dt)[..., None] * state + (x * dt)[..., None] * b[:, :, None]
    y = (state @ c[..., None])[..., 0] + x * rows.d.astype(mx.float32)[:, None]
    return y.astype(rows.x.dtype), state


ROWS = ("hidden_states", "B", "C", "dt")
"""Arguments of ``ssm_update`` that have a row for each token."""


def row_by_row(
    arguments: Mapping[str, Any], count: int, state: mx.array
) -> tuple[mx.array, mx.array]:
    """The first rows by as many calls of mlx-lm's ``ssm_update``: the bits that they must have.

    Returns:
        Their outputs, and the state after them.
    """
    out = []
    for row in range(count):
        one = {name: arguments[name][:, row : row + 1] for name in ROWS}
        y, state = ssm.ssm_update(**{**arguments, **one, "state": state})
        out.append(y)
    return mx.concatenate(out, axis=1), state
