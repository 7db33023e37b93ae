"""Up to 32 rows times a quantized matrix, in 8 x 8 simdgroup matrices."""

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
    "operands",
    "reference",
    "supports",
    "verify_qmm",
]

KERNEL = Kernel("verify_qmm", ("x", "w", "scales", "biases"), ("y",), parts=("affine",))
MOST_ROWS = 32
"""That share one reading of the weights; more are split evenly."""
COLUMNS = 32
"""Outputs of a threadgroup."""
SIMDGROUPS = 8
"""Of a threadgroup, each with its share of the inputs."""
ENOUGH = 1024
"""Simdgroups that keep a GPU busy; narrower matrices are split among more threadgroups."""
LEAST = 2
"""Blocks of inputs that are worth a simdgroup."""


def supports(matrix: Matrix, rows: int, dtype: mx.Dtype) -> str | None:
    """Why the kernel does not take ``x`` [rows, K] of this type, in a sentence; None if it does."""
    if why := affine.supports(matrix, dtype):
        return why
    return "there are no rows" if rows < 1 else None


def launch(x: mx.array, matrix: Matrix) -> Launch:
    """How ``operands`` of the same arguments are multiplied.

    With more than one threadgroup along z, each writes its part of the sum in float32:
    the output is [parts, rows, N].
    """
    rows, outputs = x.shape[0], matrix.outputs
    groups, columns = -(-rows // MOST_ROWS), -(-outputs // COLUMNS)
    tiles = -(-rows // (8 * groups))
    groups = -(-rows // (8 * tiles))
    parts = _parts(columns * groups, matrix)
    y = x.dtype if parts == 1 else mx.float32
    return Launch(
        grid=(32 * SIMDGROUPS * columns, groups, parts),
        threadgroup=(32 * SIMDGROUPS, 1, 1),
        template=(
            ("Y", y),
            ("BITS", matrix.bits),
            ("GROUP", matrix.group_size),
            ("TILES", tiles),
            ("SIMDGROUPS", SIMDGROUPS),
            ("EDGE", outputs % COLUMNS != 0 or matrix.inputs % _block(matrix) != 0),
        ),
        shapes=((rows, outputs) if parts == 1 else (parts, rows, outputs),),
        dtypes=(y,),
    )


def operands(x: mx.array, matrix: Matrix) -> list[mx.array]:
    """The kernel's inputs."""
    return [x, matrix.w, matrix.scales, matrix.biases]


def verify_qmm(x: mx.array, matrix: Matrix) -> mx.array:
    """``x @ matrix.T`` on the GPU.

    Args:
        x: [rows, K], float32, float16 or bfloat16, made for 6 to 32 rows.
        matrix: of the same type; see ``supports``.

    Returns:
        [rows, N], of the type of ``x``, added in float32.
    """
    y = KERNEL(operands(x, matrix), launch(x, matrix))[0]
    return y if y.ndim == 2 else y.sum(axis=0).astype(x.dtype)


def _block(matrix: Matrix) -> int:
    """Inputs that a simdgroup takes at a time."""
    return 8 * affine.chunk(matrix.bits)


def _parts(threadgroups: int, matrix: Matrix) -> int:
    """Threadgroups that share one output: no more than fill the GPU, each with enough to do."""
    wanted = ENOUGH // (SIMDGROUPS * threadgroups)
    return max(1, min(wanted, matrix.inputs // (LEAST * SIMDGROUPS * _block(matrix))))
