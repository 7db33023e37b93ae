"""Quantized matrices for the tests, and what their products must be."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
import numpy as np
from harness.mlx_kernels import QUANTIZED, TYPES, mlx_text, run_mlx
from numpy.typing import NDArray

from macspec.metal.matmul import Matrix

Doubles = NDArray[np.float64]
ROUNDING = {mx.float32: 2.0**-24, mx.float16: 2.0**-11, mx.bfloat16: 2.0**-8}


class Matmul(NamedTuple):
    """A product ``x [rows, inputs] @ matrix.T [inputs, outputs]``."""

    rows: int
    outputs: int
    inputs: int
    group_size: int
    bits: int
    dtype: mx.Dtype
    mode: str = "affine"

    def __str__(self) -> str:
        shape = f"{self.rows}x{self.inputs}x{self.outputs}"
        affine = f"g{self.group_size}-b{self.bits}"
        return f"{shape}-{affine if self.mode == 'affine' else self.mode}-{TYPES[self.dtype]}"


def make(case: Matmul, seed: int = 0) -> tuple[mx.array, Matrix]:
    """Normal inputs and a quantized normal matrix."""
    random = np.random.default_rng(seed)
    x = mx.array(random.normal(size=(case.rows, case.inputs)).astype(np.float32))
    weights = mx.array(random.normal(size=(case.outputs, case.inputs)).astype(np.float32))
    how = case.group_size, case.bits, case.mode
    w, scales, *biases = mx.quantize(weights.astype(case.dtype), *how)
    return x.astype(case.dtype), Matrix(w, scales, biases[0] if biases else None, *how)


def to_float64(array: mx.array) -> Doubles:
    """The same numbers."""
    return np.array(array.astype(mx.float32)).astype(np.float64)


def unpacked(matrix: Matrix) -> Doubles:
    """The integers q [N, K], taken from the stream of bits."""
    stream = np.unpackbits(np.array(matrix.w).view(np.uint8), axis=1, bitorder="little")
    digits = stream.reshape(matrix.outputs, matrix.inputs, matrix.bits)
    return digits @ (2.0 ** np.arange(matrix.bits))


def small_float(codes: Doubles, exponents: int, fraction: int) -> Doubles:
    """The values of floats with so many bits of exponent and fraction, and a sign above."""
    sign, exponent = np.divmod(codes, 2.0 ** (exponents + fraction))
    exponent, part = np.divmod(exponent, 2.0**fraction)
    part = part / 2**fraction + (exponent > 0)
    return (1 - 2 * sign) * part * 2 ** (np.maximum(exponent, 1) - 2.0 ** (exponents - 1) + 1)


def small_floats(matrix: Matrix, q: Doubles) -> tuple[Doubles, Doubles, Doubles]:
    """Weights, scales and biases of a matrix that is not affine, by the formats' definitions."""
    stored = to_float64(matrix.scales)
    scales = small_float(stored, 4, 3) if matrix.mode == "nvfp4" else 2 ** (stored - 127)
    weights = small_float(q, 4, 3) if matrix.bits == 8 else small_float(q, 2, 1)
    return weights, scales, np.zeros_like(scales)


def exact(x: mx.array, matrix: Matrix, *, rounded: bool = False) -> tuple[Doubles, Doubles]:
    """``x @ matrix.T`` in float64, and how far float32 sums, rounded to x's type, may be off;
    ``rounded``: of weights that were rounded to it, too."""
    q, inputs = unpacked(matrix), to_float64(x)
    if matrix.biases is None:
        q, scales, biases = small_floats(matrix, q)
    else:
        scales, biases = to_float64(matrix.scales), to_float64(matrix.biases)
    scales, biases = (np.repeat(it, matrix.group_size, axis=1) for it in (scales, biases))
    product = inputs @ (scales * q + biases).T
    size = np.abs(inputs) @ (np.abs(scales * q) + np.abs(biases)).T
    each = 2.0**-20 + rounded * ROUNDING[x.dtype]
    return product, each * size + ROUNDING[x.dtype] * np.abs(product) + 2.0**-25


def right(y: mx.array, x: mx.array, matrix: Matrix, *, rounded: bool = False) -> bool:
    """Whether ``y`` is the product, as near as float32 sums (of ``rounded`` weights) are."""
    product, tolerance = exact(x, matrix, rounded=rounded)
    return y.dtype == x.dtype and bool((np.abs(to_float64(y) - product) <= tolerance).all())


def same_bits(one: mx.array, other: mx.array) -> bool:
    """Equal to the last bit; any NaN equals any other."""
    kind = mx.uint32 if one.dtype == mx.float32 else mx.uint16
    equal = (one.view(kind) == other.view(kind)) | (mx.isnan(one) & mx.isnan(other))
    return one.dtype == other.dtype and bool(equal.all())


def mlx_rows(x: mx.array, matrix: Matrix, *, fused: bool) -> mx.array:
    """Each row by itself, by the kernel that MLX 0.32.4 takes for one row.

    ``affine_qmv_fast`` where its lanes' blocks fill the inputs (mlx/backend/metal/quantized.cpp,
    ``qmv_fast_k_alignment``), for outputs that are no multiple of 8 with partial rows; elsewhere
    ``affine_qmv``. MLX's grid has a column for each row of x, so one launch does for all.
    """
    block = {2: 512, 3: 512, 4: 512, 5: 512, 6: 256, 8: 256}[matrix.bits]
    fast = matrix.inputs % block == 0
    kind, partial = TYPES[x.dtype], str(matrix.outputs % 8 != 0).lower()
    arguments = f"{kind}, {matrix.group_size}, {matrix.bits}, false"
    text = mlx_text(
        QUANTIZED,
        "affine_qmv_fast" if fast else "affine_qmv",
        f"{arguments}, {partial}" if fast else arguments,
        {"T": kind},
    )
    inputs = {"w": matrix.w, "scales": matrix.scales, "biases": matrix.biases, "x": x}
    sizes = {
        "in_vec_size": np.int32(matrix.inputs),
        "out_vec_size": np.int32(matrix.outputs),
    }
    outputs = {"y": ((x.shape[0], matrix.outputs), x.dtype)}
    groups = (x.shape[0], -(-matrix.outputs // 8), 1)
    return run_mlx(text, inputs | sizes, outputs, groups, (32, 2, 1), fused=fused)[0]
