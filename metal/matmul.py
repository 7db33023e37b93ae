"""A few rows times a quantized matrix: each weight is read and unpacked once for all rows.

``verify_qmv`` takes up to 8 rows in registers, ``verify_qmm`` up to 32 in 8 x 8 simdgroup matrices,
``verify_qmt`` as many in the tensor units of the M5; more rows are split evenly.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import mlx.core as mx

from .kernel import TYPES, Kernel, Launch, dtype_name

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
AFFINE = "affine"
FLOATS = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}
"""Bits and group size of MLX's other modes, whose weights and scales are small floats."""
MOST_BYTES = 2**31 - 1
"""Of the packed weights: the kernels count in 32 bits."""

BUFFERS = ("x", "w", "scales", "biases")
QMV = Kernel("verify_qmv", BUFFERS, ("y",), parts=("weights",))
QMV_STRICT = Kernel("verify_qmv_strict", BUFFERS, ("y",))
QMM = Kernel("verify_qmm", BUFFERS, ("y",), parts=("weights", "simdgroup"))
QMT = Kernel("verify_qmt", BUFFERS, ("y",), parts=("weights", "simdgroup"))
TENSOR_TYPES = (mx.float16, mx.bfloat16)
"""Of the rows that the tensor units take."""
KERNELS = {it.name: it for it in (QMV, QMV_STRICT, QMM, QMT)}
STRICT = QMV_STRICT.name
"""``verify_qmv`` in the order of MLX's one-row kernels."""

QMV_ROWS = 8
QMV_SIMDGROUPS = 2
QMV_COLUMNS = 4
"""Outputs of a lane, as in the kernel's text."""
WIDE = 2048
"""From this many outputs on, half a simdgroup takes a row of the matrix."""
PACK = {2: 16, 3: 8, 4: 8, 5: 8, 6: 4, 8: 4}
"""Values that MLX's one-row kernels unpack together, by bits."""

QMM_ROWS = 32
QMM_SIMDGROUPS = 8
"""Of a threadgroup, each with its share of the inputs."""
QMM_COLUMNS = 32
"""Outputs of a threadgroup."""
ENOUGH = 1024
"""Simdgroups that keep a GPU busy; narrower matrices are split among more threadgroups."""
LEAST = 2
"""Blocks of inputs that are worth a simdgroup."""


@dataclass(frozen=True, slots=True)
class Matmul:
    """Rows times one quantized matrix, as far as kernels tell matrices apart."""

    bits: int
    group_size: int
    inputs: int
    outputs: int
    dtype: mx.Dtype
    mode: str = AFFINE

    def __str__(self) -> str:
        affine = f"{self.bits}-bit, groups of {self.group_size}"
        weights = affine if self.mode == AFFINE else self.mode
        return f"{weights}, {self.inputs} to {self.outputs}, {dtype_name(self.dtype)}"


@dataclass(frozen=True, eq=False, slots=True)
class Matrix:
    """A matrix [N, K] as ``mx.quantize`` packs it: ``scale * q + bias`` in groups along K.

    Attributes:
        w: packed values, uint32 [N, K * bits / 32].
        scales, biases: [N, K / group_size]; only affine matrices have biases.
    """

    w: mx.array
    scales: mx.array
    biases: mx.array | None
    group_size: int
    bits: int
    mode: str = AFFINE

    @property
    def outputs(self) -> int:
        """N, the width of ``x @ matrix.T``."""
        return self.w.shape[0]

    @property
    def inputs(self) -> int:
        """K, the width of ``x``."""
        return self.w.shape[1] * 32 // self.bits

    @property
    def operands(self) -> list[mx.array]:
        """As kernels take them: they read no biases where there are none."""
        return [self.w, self.scales, self.scales if self.biases is None else self.biases]

    def shape(self, dtype: mx.Dtype) -> Matmul:
        """What kernels see of it when they multiply rows of this type."""
        sizes = self.bits, self.group_size, self.inputs, self.outputs
        return Matmul(*sizes, dtype, self.mode)


def supports(matrix: Matrix, dtype: mx.Dtype, *, strict: bool = False) -> str | None:
    """Why the kernels do not multiply ``x`` of this type by this matrix; None if they do.

    Args:
        strict: in the order of MLX's one-row kernels.
    """
    affine, format = matrix.mode == AFFINE, (matrix.bits, matrix.group_size)
    if not affine and FLOATS.get(matrix.mode) != format:
        return f"weights in {matrix.mode} are not supported"
    if matrix.bits not in BITS:
        return f"{matrix.bits}-bit weights are not supported; {_listed(BITS)} bits are"
    if affine and matrix.group_size not in GROUP_SIZES:
        return f"groups of {matrix.group_size} are not supported; {_listed(GROUP_SIZES)} are"
    if dtype not in TYPES:
        return f"{dtype_name(dtype)} is not supported; float32, float16 and bfloat16 are"
    if affine and {it.dtype for it in matrix.operands[1:]} != {dtype}:
        scales = dtype_name(matrix.scales.dtype)
        return f"scales and biases are {scales}, the input is {dtype_name(dtype)}"
    if matrix.w.dtype != mx.uint32 or matrix.w.ndim != 2:
        return "the weights are not one packed matrix"
    if matrix.inputs % matrix.group_size:
        return f"{matrix.inputs} inputs are not whole groups of {matrix.group_size}"
    if matrix.w.nbytes > MOST_BYTES:
        return "the matrix has more than 2 GB"
    return another_order(matrix.shape(dtype)) if strict else None


def _generation() -> int:
    """Of the GPU: 13 is M1, 17 M5; 0: it has none of Apple's."""
    found = re.search(r"_g(\d+)", str(mx.device_info().get("architecture", "")))
    return int(found[1]) if found else 0


def has_tensor_units() -> bool:
    """Whether the GPU has what ``verify_qmt`` needs: M5, and the Metal of macOS 26.2."""
    version = [int(part) for part in platform.mac_ver()[0].split(".") if part.isdigit()]
    return _generation() >= 17 and version >= [26, 2]


def mlx_takes_rows_together() -> bool:
    """Whether MLX reads affine weights once for several rows, from M3 on (mlx #3764)."""
    return _generation() >= 15


def another_order(shape: Matmul) -> str | None:
    """Why ``STRICT`` does not have the bits of MLX's one-row kernels; None if it does."""
    if shape.mode != AFFINE:
        return f"MLX's kernels for {shape.mode} add in another order than the affine ones"
    if shape.inputs in (64, 128) and shape.bits in (2, 4, 8):
        return f"MLX adds {shape.inputs} inputs in another order than its general kernels"
    return None


def packed_bytes(shape: Matmul) -> int:
    """Of a matrix: weights, scales and biases."""
    groups = shape.inputs // shape.group_size
    each = 2 * shape.dtype.size if shape.mode == AFFINE else 1
    return shape.outputs * (shape.inputs * shape.bits // 8 + groups * each)


def multiply(kernel: str, x: mx.array, matrix: Matrix) -> mx.array:
    """``x @ matrix.T`` on the GPU, added in float32.

    Args:
        kernel: ``verify_qmv``, made for 2 to 8 rows; ``verify_qmm`` and ``verify_qmt``, made
            for 6 to 32; or ``STRICT``, which gives the bits that MLX 0.32.4 computes for each
            row alone (see ``row_by_row``) instead of a faster order.
        x: [rows, K] or [1, rows, K], of the type of the matrix; see ``supports``.

    Returns:
        N columns for each row, of the type and dimensions of ``x``.
    """
    return prepared(kernel, x, matrix)(x)


def prepared(kernel: str, x: mx.array, matrix: Matrix) -> Callable[[mx.array], mx.array]:
    """``multiply`` for all ``x`` of the same shape and type."""
    rows = x.reshape(-1, x.shape[-1])
    run, (inputs, launch) = KERNELS[kernel], call(kernel, rows, matrix)
    _, w, scales, biases = inputs
    *parts, _, _ = launch.shapes[0]
    product = run.bound(replace(launch, shapes=((*parts, *x.shape[:-1], matrix.outputs),)))
    if parts:
        dtype = x.dtype
        return lambda x: product(inputs=[x, w, scales, biases])[0].sum(0).astype(dtype)
    return lambda x: product(inputs=[x, w, scales, biases])[0]


def call(kernel: str, x: mx.array, matrix: Matrix) -> tuple[list[mx.array], Launch]:
    """The inputs of a kernel and how it is launched for rows ``x`` [rows, K]."""
    if kernel in (QMM.name, QMT.name):
        return _qmm_call(x, matrix, tensors=kernel == QMT.name)
    return _qmv_call(x, matrix, strict=kernel == STRICT)


def _qmv_call(x: mx.array, matrix: Matrix, *, strict: bool) -> tuple[list[mx.array], Launch]:
    rows, (outputs, inputs) = x.shape[0], (matrix.outputs, matrix.inputs)
    tiles = -(-rows // QMV_ROWS)
    lanes = 32 if strict or outputs < WIDE else 16
    together = 32 // lanes * QMV_COLUMNS
    groups = -(-outputs // (together * QMV_SIMDGROUPS))
    values = _values(inputs, matrix.bits)
    unit = _unit(values, matrix.bits) if strict else mx.uint32
    launch = Launch(
        grid=(32 * tiles, QMV_SIMDGROUPS * groups, 1),
        threadgroup=(32, QMV_SIMDGROUPS, 1),
        constants=(
            (
                "SHAPE",
                _packed(
                    (4, matrix.bits),
                    (8, matrix.group_size),
                    (4, -(-rows // tiles)),
                    (5, values) if strict else (1, lanes == 16),
                    (1, outputs % (together * QMV_SIMDGROUPS) != 0),
                    (1, matrix.mode != AFFINE),
                ),
            ),
        ),
        shapes=((rows, outputs),),
        dtypes=(x.dtype,),
    )
    w, *others = matrix.operands
    return [x, w if unit == mx.uint32 else w.view(unit), *others], launch


def _qmm_call(x: mx.array, matrix: Matrix, *, tensors: bool) -> tuple[list[mx.array], Launch]:
    """Of ``verify_qmm`` or ``verify_qmt``.

    With more than one threadgroup along z, each writes its part of the sum in float32:
    the output is [parts, rows, N].
    """
    rows, outputs = x.shape[0], matrix.outputs
    groups, columns = -(-rows // QMM_ROWS), -(-outputs // QMM_COLUMNS)
    # Rows of a tile, and chunks along K that it takes at a time.
    height, chunks = (16, 4) if tensors else (8, 8)
    tiles = -(-rows // (height * groups))
    groups = -(-rows // (height * tiles))
    block = chunks * _chunk(matrix.bits)
    # As many threadgroups share one output as fill the GPU and still have enough to do.
    wanted = ENOUGH // (QMM_SIMDGROUPS * columns * groups)
    parts = max(1, min(wanted, matrix.inputs // (LEAST * QMM_SIMDGROUPS * block)))
    y = x.dtype if parts == 1 else mx.float32
    launch = Launch(
        grid=(32 * QMM_SIMDGROUPS * columns, groups, parts),
        threadgroup=(32 * QMM_SIMDGROUPS, 1, 1),
        constants=(
            *((("T", x.dtype),) if tensors else ()),
            (
                "SHAPE",
                _packed(
                    (4, matrix.bits),
                    (8, matrix.group_size),
                    (3, tiles),
                    (1, outputs % QMM_COLUMNS != 0 or matrix.inputs % block != 0),
                    (1, matrix.mode != AFFINE),
                ),
            ),
        ),
        shapes=((rows, outputs) if parts == 1 else (parts, rows, outputs),),
        dtypes=(y,),
        # Half of the simdgroups leave their sums, in float32, for the others.
        threadgroup_bytes=QMM_SIMDGROUPS // 2 * tiles * height * QMM_COLUMNS * 4,
    )
    return [x, *matrix.operands], launch


def without_nan(w: mx.array) -> mx.array:
    """Packed weights in which no byte is the NaN of E4M3."""
    octets = w.view(mx.uint8)
    return mx.where((octets & 127) == 127, octets - 1, octets).view(mx.uint32)


def by_mlx(x: mx.array, matrix: Matrix) -> mx.array:
    """``x @ matrix.T`` by MLX's own kernel for this number of rows."""
    return mx.quantized_matmul(
        x,
        matrix.w,
        matrix.scales,
        matrix.biases,
        group_size=matrix.group_size,
        bits=matrix.bits,
        mode=matrix.mode,
    )


def row_by_row(x: mx.array, matrix: Matrix) -> mx.array:
    """What plain decoding computes, each row by itself in MLX: on a GPU, the bits of strict."""
    return mx.concatenate([by_mlx(row, matrix) for row in mx.split(x, x.shape[0])])


def reference(x: mx.array, matrix: Matrix) -> mx.array:
    """``verify_qmv`` in plain MLX."""
    affine = matrix.mode == AFFINE
    weights = mx.dequantize(
        matrix.w,
        matrix.scales.astype(mx.float32) if affine else matrix.scales,
        None if matrix.biases is None else matrix.biases.astype(mx.float32),
        group_size=matrix.group_size,
        bits=matrix.bits,
        mode=matrix.mode,
        dtype=mx.float32,
    )
    return (x.astype(mx.float32) @ weights.T).astype(x.dtype)


def _packed(*fields: tuple[int, int]) -> int:
    """Widths in bits and values, from the lowest bit on; MLX takes 0.1 µs for each argument."""
    packed = at = 0
    for width, value in fields:
        packed |= value << at
        at += width
    return packed


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


def _chunk(bits: int) -> int:
    """Values that a lane takes together: whole words, within a group (``weights.metal``)."""
    return {2: 16, 4: 16, 6: 16, 8: 8}.get(bits, 32)


def _listed(numbers: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
