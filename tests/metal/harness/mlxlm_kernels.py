"""mlx-lm's own kernels, run as ours are, to compare those that promise the bits of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import mlx.core as mx
from mlx_lm.models import gated_delta, ssm

from macspec.metal import gated_delta as ours
from macspec.metal.kernel import Kernel, Launch
from macspec.metal.mamba2 import Rows

from .inline import inline
from .running import run, run_once


def mlxlm_kernel(make: Callable[[], Any]) -> Kernel:
    """The kernel that a function of mlx-lm makes where there is Metal."""
    given: dict[str, Any] = {}
    with (
        mock.patch.object(mx.metal, "is_available", return_value=True),
        mock.patch.object(mx.fast, "metal_kernel", side_effect=given.update),
    ):
        make()
    return inline(given["source"], given["input_names"], given["output_names"])


SSM = mlxlm_kernel(ssm.make_ssm_kernel)
DELTA, DELTA_BY_COLUMN = (
    mlxlm_kernel(lambda vectorized=it: gated_delta._make_gated_delta_kernel(vectorized=vectorized))
    for it in (False, True)
)
DELTA_PACKED = mlxlm_kernel(gated_delta._make_gated_delta_packed_kernel)


def ssm_rows(
    rows: Rows, count: int, state: mx.array, *, fused: bool = True
) -> tuple[mx.array, mx.array]:
    """The first rows by as many launches of mlx-lm's kernel.

    Args:
        fused: products and sums of one expression may be fused.

    Returns:
        Their outputs, [1, count, heads, width], and the state after them.
    """
    shape = rows.shape
    launch = Launch(
        grid=(32, shape.width, shape.heads),
        threadgroup=(32, 8, 1),
        constants=(
            *(("T", shape.dtype), ("U", state.dtype), ("Dh", shape.width), ("Ds", shape.state)),
            *(("H", shape.heads), ("G", shape.heads // shape.groups)),
        ),
        shapes=((1, 1, shape.heads, shape.width), state.shape),
        dtypes=(shape.dtype, state.dtype),
    )
    found = [mx.zeros((1, 0, shape.heads, shape.width), shape.dtype)]
    for row in range(count):
        x, b, c, dt = (it[:, row : row + 1] for it in (rows.x, rows.b, rows.c, rows.dt))
        arrays = [x, rows.a_log, b, c, rows.d, dt, state]
        outputs = run(SSM, arrays, launch, inspected=False)
        y, state = outputs if fused else outputs.unfused
        found.append(y)
    return mx.concatenate(found, axis=1), state


def delta_rows(
    rows: ours.Rows, state: mx.array, *, fused: bool = True
) -> tuple[mx.array, mx.array]:
    """Outputs of rows and the state after them, by the kernel that mlx-lm takes for them."""
    shape, count = rows.shape, rows.q.shape[1]
    packed = shape.width == 128 and shape.value_width % 8 == 0 and not shape.by_column
    kernel = DELTA_PACKED if packed else DELTA_BY_COLUMN if shape.by_column else DELTA
    launch = Launch(
        grid=(32, shape.value_width // 8 if packed else shape.value_width, shape.heads),
        threadgroup=(32, 2 if packed else 4, 1),
        constants=(
            *(("InT", shape.dtype), ("StT", mx.float32)),
            *(("Dk", shape.width), ("Dv", shape.value_width)),
            *(("Hk", shape.key_heads), ("Hv", shape.heads)),
        ),
        shapes=(rows.v.shape, state.shape),
        dtypes=(shape.dtype, mx.float32),
    )
    call = kernel, [*rows, state, mx.array(count)], launch
    if fused:
        y, after = run_once(*call, inspected=False)
    else:
        y, after = run(*call, inspected=False).unfused
    return y, after
