"""MLX's affine quantized matrices, as the kernels of this folder take them."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
TYPES = (mx.float32, mx.float16, mx.bfloat16)
MOST_BYTES = 2**31 - 1
"""Of the packed weights: the kernels count in 32 bits."""


@dataclass(frozen=True, eq=False, slots=True)
class Matrix:
    """A matrix [N, K] as ``mx.quantize`` packs it: ``scale * q + bias`` in groups along K.

    Attributes:
        w: packed values, uint32 [N, K * bits / 32].
        scales, biases: [N, K / group_size].
        group_size, bits: of the quantization.
    """

    w: mx.array
    scales: mx.array
    biases: mx.array
    group_size: int
    bits: int

    @property
    def outputs(self) -> int:
        """N, the width of ``x @ matrix.T``."""
        return self.w.shape[0]

    @property
    def inputs(self) -> int:
        """K, the width of ``x``."""
        return self.w.shape[1] * 32 // self.bits

    @property
    def dtype(self) -> mx.Dtype:
        """Of scales and biases."""
        return self.scales.dtype


def chunk(bits: int) -> int:
    """Values that a lane takes together: whole words, within a group (``affine.metal``)."""
    return {2: 16, 4: 16, 6: 16, 8: 8}.get(bits, 32)


def supports(matrix: Matrix, dtype: mx.Dtype) -> str | None:
    """Why no kernel of this folder multiplies ``x`` of type ``dtype`` by this matrix, if so."""
    if matrix.bits not in BITS:
        return f"{matrix.bits}-bit weights are not supported; {_any(BITS)} bits are"
    if matrix.group_size not in GROUP_SIZES:
        return f"groups of {matrix.group_size} are not supported; {_any(GROUP_SIZES)} are"
    if dtype not in TYPES:
        return f"{_name(dtype)} is not supported; float32, float16 and bfloat16 are"
    if matrix.scales.dtype != dtype or matrix.biases.dtype != dtype:
        return f"scales and biases are {_name(matrix.dtype)}, the input is {_name(dtype)}"
    if matrix.w.dtype != mx.uint32 or matrix.w.ndim != 2:
        return "the weights are not one packed matrix"
    if matrix.inputs % matrix.group_size:
        return f"{matrix.inputs} inputs are not whole groups of {matrix.group_size}"
    if matrix.w.nbytes > MOST_BYTES:
        return "the matrix has more than 2 GB"
    return None


def reference(x: mx.array, matrix: Matrix) -> mx.array:
    """``x @ matrix.T`` by dequantizing and multiplying in float32.

    Args:
        x: [rows, K].

    Returns:
        [rows, N], of the type of ``x``.
    """
    weights = mx.dequantize(
        matrix.w,
        matrix.scales.astype(mx.float32),
        matrix.biases.astype(mx.float32),
        group_size=matrix.group_size,
        bits=matrix.bits,
    )
    return (x.astype(mx.float32) @ weights.T).astype(x.dtype)


def _any(numbers: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _name(dtype: mx.Dtype) -> str:
    return str(dtype).removeprefix("mlx.core.")
