"""A few rows times a quantized matrix: each weight is read and unpacked once for all rows."""

from __future__ import annotations

import mlx.core as mx

from . import affine
from .affine import Matrix, reference
from .kernel import Kernel, Launch

__all__ = [
    "KERNEL",
    "MOST_ROWS",
    "Matrix",
    "launch",
    "one_by_one",
    "operands",
    "reference",
    "supports",
    "verify_qmv",
]

KERNEL = Kernel("verify_qmv", ("x", "w", "scales", "biases"), ("y",), parts=("affine",))
MOST_ROWS = 8
"""That share one reading of the weights; more are split evenly."""
SIMDGROUPS = 2
COLUMNS = 4
"""Outputs of a lane, as in the kernel's text."""
WIDE = 2048
"""From so many outputs on, half a simdgroup takes a row of the matrix."""
PACK = {2: 16, 3: 8, 4: 8, 5: 8, 6: 4, 8: 4}
"""Values that MLX's one-row kernels unpack together, by bits."""


def supports(matrix: Matrix, rows: int, dtype: mx.Dtype, *, strict: bool = False) -> str | None:
    """Why the kernel does not take ``x`` [rows, K] of this type, in a sentence; None if it does."""
    if why := affine.supports(matrix, dtype):
        return why
    if rows < 1:
        return "there are no rows"
    if strict and matrix.inputs in (64, 128) and matrix.bits in (2, 4, 8):
        return f"MLX adds {matrix.inputs} inputs in another order than its general kernels"
    return None


def launch(x: mx.array, matrix: Matrix, *, strict: bool = False) -> Launch:
    """How ``operands`` of the same arguments are multiplied."""
    rows, (outputs, inputs) = x.shape[0], (matrix.outputs, matrix.inputs)
    tiles = -(-rows // MOST_ROWS)
    lanes = 32 if strict or outputs < WIDE else 16
    together = 32 // lanes * COLUMNS
    groups = -(-outputs // (together * SIMDGROUPS))
    values = _values(inputs, matrix.bits) if strict else 0
    return Launch(
        grid=(32 * tiles, SIMDGROUPS * groups, 1),
        threadgroup=(32, SIMDGROUPS, 1),
        template=(
            ("T", x.dtype),
            ("BITS", matrix.bits),
            ("GROUP", matrix.group_size),
            ("ROWS", -(-rows // tiles)),
            ("VALUES", values),
            ("UNIT", 8 * _unit(values, matrix.bits).size),
            ("LANES", lanes),
            ("EDGE", outputs % (together * SIMDGROUPS) != 0),
        ),
        shapes=((rows, outputs),),
        dtypes=(x.dtype,),
    )


def operands(x: mx.array, matrix: Matrix, *, strict: bool = False) -> list[mx.array]:
    """The kernel's inputs."""
    values = _values(matrix.inputs, matrix.bits) if strict else 0
    unit = _unit(values, matrix.bits)
    w = matrix.w if unit == mx.uint32 else matrix.w.view(unit)
    return [x, w, matrix.scales, matrix.biases]


def verify_qmv(x: mx.array, matrix: Matrix, *, strict: bool = False) -> mx.array:
    """``x @ matrix.T`` on the GPU.

    Args:
        x: [rows, K], float32, float16 or bfloat16, made for 2 to 8 rows.
        matrix: of the same type; see ``supports``.
        strict: the bits that MLX 0.32.4 computes for each row alone (see ``one_by_one``) instead of
            a faster order.

    Returns:
        [rows, N], of the type of ``x``, added in float32.
    """
    return KERNEL(operands(x, matrix, strict=strict), launch(x, matrix, strict=strict))[0]


def one_by_one(x: mx.array, matrix: Matrix) -> mx.array:
    """What plain decoding computes, each row by itself in MLX: on a GPU, the bits of strict."""
    return mx.concatenate(
        [
            mx.quantized_matmul(
                row,
                matrix.w,
                matrix.scales,
                matrix.biases,
                group_size=matrix.group_size,
                bits=matrix.bits,
            )
            for row in mx.split(x, x.shape[0])
        ]
    )


def _values(inputs: int, bits: int) -> int:
    """Values of a row that one lane of MLX's kernel takes at a time.

    ``affine_qmv_fast`` where whole blocks of all lanes fill the row, ``affine_qmv`` elsewhere
    (mlx/backend/metal/quantized.cpp, ``qmv_fast_k_alignment``).
    """
    fast = PACK[bits] * (1 if bits == 2 else 2)
    return fast if inputs % (32 * fast) == 0 else PACK[bits]


def _unit(values: int, bits: int) -> mx.Dtype:
    """The widest integers that a lane's share of a row consists of."""
    share = values * bits // 8
    return mx.uint8 if share % 2 else mx.uint16 if share % 4 else mx.uint32
