"""MLX's own kernels, known to work on GPUs, run through the harness and give the right values.

The text is that of the installed wheel: a new MLX that changes a kernel is seen here first.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from harness import inline, run_once
from harness.headers import flattened
from harness.mlx_kernels import QUANTIZED, TYPES, affine_qmv, mlx_text, run_mlx

from macspec.metal.kernel import Launch

K, N, GROUP = 1024, 64, 64
DTYPES = [mx.float32, mx.float16, mx.bfloat16]
STEP = {mx.float32: 2e-6, mx.float16: 1e-3, mx.bfloat16: 8e-3}
"""Half a unit in the last place of a result, and a little, relative to the largest."""


def near(got: mx.array, want: mx.array) -> bool:
    largest = mx.abs(want).max().item()
    error = mx.abs(got.astype(mx.float32) - want).max().item()
    return bool(error <= STEP[got.dtype] * largest)


def quantized(
    rows: int, dtype: mx.Dtype, *, bits: int = 4, columns: int = K
) -> tuple[mx.array, list[mx.array], mx.array]:
    """Rows, a quantized matrix, and their product in float32."""
    mx.random.seed(bits)
    x = mx.random.normal((rows, columns)).astype(dtype)
    matrix = mx.quantize(mx.random.normal((N, columns)).astype(dtype), group_size=GROUP, bits=bits)
    weight, scales, biases = matrix
    plain = mx.dequantize(
        weight, scales.astype(mx.float32), biases.astype(mx.float32), group_size=GROUP, bits=bits
    )
    return x, [weight, scales, biases], x.astype(mx.float32) @ plain.T


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("bits", "columns"), [(4, 1024), (8, 512), (4, 576)])
def test_one_row(dtype: mx.Dtype, bits: int, columns: int) -> None:
    """affine_qmv_fast, and affine_qmv where the columns are no multiple of 512."""
    x, matrix, want = quantized(1, dtype, bits=bits, columns=columns)
    got = affine_qmv(x, *matrix, group_size=GROUP, bits=bits, inspected=dtype == mx.bfloat16)
    assert near(got, want)


def several(name: str, rows: int, dtype: mx.Dtype) -> mx.array:
    """A few rows by MLX's kernel for a few rows, or by that for many."""
    x, (weight, scales, biases), want = quantized(rows, dtype)
    kind = TYPES[dtype]
    arrays = {"w": weight, "scales": scales, "biases": biases, "x": x}
    outputs = {"y": ((rows, N), dtype)}
    if name == "affine_qmv_wide":
        text = mlx_text(QUANTIZED, name, f"{kind}, {GROUP}, 4, {rows}, 8, false", {"T": kind})
        sizes = {"in_vec_size": K, "out_vec_size": N, "M": rows}
        groups, threads = (1, N // 8, 1), (32, 2, 1)
    else:
        text = mlx_text(QUANTIZED, name, f"{kind}, {GROUP}, 4, true, false", {"T": kind})
        sizes = {"K": K, "N": N, "M": rows}
        groups, threads = (N // 32, 1, 1), (32, 2, 2)
    numbers = {key: np.int32(value) for key, value in sizes.items()}
    (got,) = run_mlx(text, arrays | numbers, outputs, groups, threads, inspected=True)
    assert near(got, want)
    return got


@pytest.mark.parametrize("dtype", DTYPES)
def test_few_rows(dtype: mx.Dtype) -> None:
    """Right values, but not the bits of one row at a time: why an exact form is needed."""
    wide, many = (several(name, 5, dtype) for name in ("affine_qmv_wide", "affine_qmm_t"))
    x, matrix, _ = quantized(5, dtype)
    rows = [affine_qmv(row[None], *matrix, group_size=GROUP, bits=4) for row in x]
    alone = mx.concatenate(rows)
    assert (alone != many).any().item()
    if dtype == mx.float32:
        assert (alone != wide).any().item()


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(dtype: mx.Dtype, causal: bool) -> None:
    """sdpa_vector: 1,024 threads, grouped heads, three queries."""
    heads, group, queries, keys, width = 2, 2, 3, 77, 64
    mx.random.seed(1)
    q = mx.random.normal((1, heads * group, queries, width)).astype(dtype)
    k, v = (mx.random.normal((1, heads, keys, width)).astype(dtype) for _ in range(2))
    kind = TYPES[dtype]
    constants = {"do_causal": int(causal)}
    text = mlx_text(["sdpa_vector.h"], "sdpa_vector", f"{kind}, {width}", {"T": kind}, constants)
    numbers = {
        "gqa_factor": np.int32(group),
        "N": np.int32(keys),
        "k_head_stride": np.int64(keys * width),
        "k_seq_stride": np.int64(width),
        "v_head_stride": np.int64(keys * width),
        "v_seq_stride": np.int64(width),
        "scale": np.float32(width**-0.5),
    }
    arrays = {"queries": q, "keys": k, "values": v}
    outputs = {"out": (tuple(q.shape), dtype)}
    groups = (heads * group, queries, 1)
    (got,) = run_mlx(text, arrays | numbers, outputs, groups, (1024, 1, 1), inspected=True)
    parts = (part.astype(mx.float32) for part in (q, k, v))
    mask = "causal" if causal else None
    want = mx.fast.scaled_dot_product_attention(*parts, scale=width**-0.5, mask=mask)
    assert near(got, want)


@pytest.mark.parametrize("axis", [100, 1000])
def test_softmax(axis: int) -> None:
    x = mx.random.normal((3, axis)) * 4
    text = mlx_text(["softmax.h"], "softmax_single_row", "float", {"T": "float"})
    threads = -(-axis // 128) * 32
    outputs = {"out": ((3, axis), mx.float32)}
    inputs = {"in": x, "axis_size": np.int32(axis)}
    (got,) = run_mlx(text, inputs, outputs, (3, 1, 1), (threads, 1, 1), inspected=True)
    assert near(got, mx.softmax(x, axis=-1))


def test_tensor_units() -> None:
    """MLX's own fragments of the M5, with the elements in the lanes where MLX puts them."""
    body = """
    using namespace mlx::steel;
    NAXTile<T, 1, 1> left;
    NAXTile<T, 2, 1> right;
    NAXTile<float, 1, 2> sums;
    left.load(a, 16);
    right.load(b, 16);
    sums.clear();
    constexpr auto no = metal::bool_constant<false>{};
    tile_matmad_nax(sums, left, no, right, metal::bool_constant<true>{});
    sums.store(y, int(threads_per_threadgroup.x));"""
    header = flattened("steel/gemm/nax.h")[len(flattened()) :]
    kernel = inline(body, ("a", "b"), ("y",), header=header)
    a, b = (mx.random.normal((rows, 16)).astype(mx.float16) for rows in (16, 32))
    constants = (("T", mx.float16),)
    launch = Launch((32, 1, 1), (32, 1, 1), constants, ((16, 32),), (mx.float32,))
    (y,) = run_once(kernel, [a, b], launch, inspected=False)
    assert near(y, a.astype(mx.float32) @ b.astype(mx.float32).T)
