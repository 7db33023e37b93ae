"""Metal's language and library, as the shim gives them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from harness import inline, run, with_text

from macspec.metal.kernel import Constants, Kernel, Launch

NAMES = ("x", "y", "z")


def go(
    body: str,
    arrays: Sequence[mx.array],
    shape: tuple[int, ...],
    dtype: mx.Dtype = mx.float32,
    *,
    threads: int = 32,
    threadgroup: int = 32,
    header: str = "",
    constants: Constants = (),
    init: float | None = None,
    kernel: Kernel | None = None,
) -> np.ndarray[Any, Any]:
    """The only output, of a grid of one dimension."""
    launch = Launch((threads, 1, 1), (threadgroup, 1, 1), constants, (shape,), (dtype,), init)
    kernel = kernel or inline(body, NAMES[: len(arrays)], ("out",), header=header)
    (out,) = run(kernel, arrays, launch)
    return np.array(out.astype(mx.float32) if dtype == mx.bfloat16 else out)


def test_edge_threadgroups() -> None:
    """The last threadgroup is smaller, its simdgroup partial."""
    out = go(
        "uint i = thread_position_in_grid.x; float v = i < uint(x_shape[0]) ? x[i] : 0;"
        "out[i] = simd_sum(v) * y + threads_per_threadgroup.x + 1000 * simdgroups_per_threadgroup;",
        [mx.arange(100, dtype=mx.float32), mx.array(2.0)],
        (100,),
        threads=100,
        threadgroup=64,
    )
    sums = [sum(range(start, min(start + 32, 100))) for start in (0, 32, 64, 96)]
    sizes = [2064, 2064, 2036, 2036]
    want = np.repeat([2 * s + n for s, n in zip(sums, sizes, strict=True)], 32)[:100]
    assert (out == want).all()


def test_positions() -> None:
    launch = Launch((6, 4, 2), (3, 2, 1), (), ((2, 4, 6, 9),), (mx.uint32,))
    body = """
      uint3 p = thread_position_in_grid, g = threadgroup_position_in_grid;
      uint3 n = threads_per_grid, m = threadgroups_per_grid;
      device uint* o = out + ((p.z * n.y + p.y) * n.x + p.x) * 9;
      uint values[9] = {g.x, g.y, g.z,
                        thread_position_in_threadgroup.x, thread_index_in_threadgroup,
                        m.x, m.y, thread_index_in_quadgroup, threads_per_simdgroup};
      for (int i = 0; i < 9; i++) o[i] = values[i];"""
    (out,) = run(inline(body, (), ("out",)), [], launch)
    got = np.array(out)
    for z, y, x in np.ndindex(2, 4, 6):
        index = y % 2 * 3 + x % 3
        assert got[z, y, x].tolist() == [x // 3, y // 2, z, x % 3, index, 2, 2, index % 4, 32]


@pytest.mark.parametrize("size", [7, 8])
def test_small_inputs_are_constant(size: int) -> None:
    """Below 8 elements MLX passes ``constant``, which a helper must take as well."""
    helper = "template <typename P> inline float last(P p, int n) { return p[n - 1]; }"
    body = "out[thread_position_in_grid.x] = last(x, x_shape[0]);"
    out = go(body, [mx.arange(size, dtype=mx.float32)], (32,), header=helper)
    assert (out == size - 1).all()


def test_strides() -> None:
    """MLX hands over a row-contiguous copy; ``elem_to_loc`` is MLX's own."""
    body = """uint i = thread_position_in_grid.x;
      out[i] = x[elem_to_loc(int64_t(i), x_shape, x_strides, x_ndim)] + 100 * x_strides[0];"""
    values = mx.arange(24, dtype=mx.float32).reshape(4, 6).T
    out = go(body, [values], (24,), threads=24, threadgroup=8)
    assert (out == np.array(values).reshape(-1) + 400).all()


def test_strided() -> None:
    """A kernel that asks for it gets the gaps as well, with nothing readable in them."""
    body = "uint i = thread_position_in_grid.x; out[i] = x[i / 3 * x_strides[0] + i % 3 * y];"
    kernel = dataclasses.replace(inline(body, ("x", "y"), ("out",)), strided=True)
    kernel = with_text(kernel, "", body)
    values = mx.arange(24, dtype=mx.float32).reshape(4, 6)[:, :3]
    out = go("", [values, mx.array(1)], (12,), threads=12, kernel=kernel)
    assert (out == np.array(values).reshape(-1)).all()
    out = go("", [values, mx.array(2)], (9,), threads=9, kernel=kernel)
    assert np.isnan(out[2::3]).all()


def test_vectors() -> None:
    out = go(
        """uint i = thread_position_in_grid.x;
        float4 a = float4(x[i], 1, 2, 3); a.xy = a.yx;
        vec<T, 4> b = vec<T, 4>(a); float2 c = float2(a.zw) + a.xy;
        uint3 u = uint3(uint2(1, 2), 3u);
        uint bits = as_type<uint>(float(b.y));
        out[i] = float(b.w) + c.x + c.y + select(0.0f, 1.0f, bits == as_type<uint>(x[i]))
          + dot(a, float4(1)) + u.z + any(u == uint3(2)) + all(u == uint3(2));""",
        [mx.arange(9, dtype=mx.float32)],
        (9,),
        threads=9,
        constants=(("T", mx.float16),),
    )
    assert out.tolist() == [3 + 3 + 3 + i + 1 + i + 1 + 2 + 3 + 3 + 1 for i in range(9)]


SIMD = {
    "simd_sum(i)": lambda i: 496,
    "simd_max(i ^ 5u)": lambda i: 31,
    "simd_min(i + 2)": lambda i: 2,
    "simd_prefix_inclusive_sum(i)": lambda i: i * (i + 1) // 2,
    "simd_prefix_exclusive_sum(i)": lambda i: i * (i - 1) // 2,
    "simd_shuffle(i, ushort(31 - i))": lambda i: 31 - i,
    "simd_shuffle_xor(i, ushort(3))": lambda i: i ^ 3,
    "simd_shuffle_down(i, ushort(4))": lambda i: i + 4 if i < 28 else i,
    "simd_shuffle_up(i, ushort(4))": lambda i: i - 4 if i > 3 else i,
    "simd_shuffle_rotate_down(i, ushort(4))": lambda i: (i + 4) % 32,
    "simd_shuffle_rotate_up(i, ushort(4))": lambda i: (i - 4) % 32,
    "simd_shuffle_and_fill_up(i, i + 100, ushort(4))": lambda i: i - 4 if i > 3 else i + 128,
    "simd_broadcast(i, ushort(3))": lambda i: 3,
    "simd_broadcast_first(i + 7)": lambda i: 7,
    "quad_sum(i)": lambda i: 4 * (i // 4 * 4) + 6,
    "quad_broadcast(i, ushort(2))": lambda i: i // 4 * 4 + 2,
    "popcount(uint(ulong(simd_ballot(i < 5))))": lambda i: 5,
    "uint(simd_any(i == 9))": lambda i: 1,
    "uint(simd_all(i < 31))": lambda i: 0,
    "uint(simd_is_first())": lambda i: i == 0,
    "simd_and(i | 8u)": lambda i: 8,
    "simd_or(i)": lambda i: 31,
}


def test_simd_operations() -> None:
    lines = [f"out[{32 * k} + i] = {text};" for k, text in enumerate(SIMD)]
    body = "uint i = thread_index_in_simdgroup;" + "\n".join(lines)
    out = go(body, [], (len(SIMD), 32), mx.uint32)
    for row, (text, want) in zip(out, SIMD.items(), strict=True):
        assert row.tolist() == [want(i) for i in range(32)], text


def test_sum_is_a_butterfly() -> None:
    """Pairs first, then pairs of pairs: the order matters to the last bit."""
    values = np.random.default_rng(0).normal(size=32).astype(np.float32)
    want = values
    while len(want) > 1:
        want = want[::2] + want[1::2]
    body = "out[thread_index_in_simdgroup] = simd_sum(x[thread_index_in_simdgroup]);"
    out = go(body, [mx.array(values)], (32,))
    assert (out == want[0]).all()
    assert want[0] != np.cumsum(values, dtype=np.float32)[-1]


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_matrices(dtype: mx.Dtype) -> None:
    """Through device and threadgroup memory, plain and transposed."""
    body = """
      threadgroup T tile[64];
      simdgroup_matrix<T, 8, 8> a, b;
      simdgroup_matrix<float, 8, 8> c = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
      simdgroup_load(a, x, 8);
      simdgroup_load(b, y, 8, ulong2(0, 0), true);
      simdgroup_store(b, tile, 8);
      simdgroup_barrier(mem_flags::mem_threadgroup);
      simdgroup_load(b, tile, 8);
      simdgroup_multiply_accumulate(c, a, b, c);
      simdgroup_store(c, out, 8);
      if (thread_index_in_simdgroup > 40) out[0] = 0;"""
    a, b = (mx.random.normal((8, 8)).astype(dtype) for _ in range(2))
    out = go(body, [a, b], (8, 8), constants=(("T", dtype),))
    want = np.array(a.astype(mx.float32)) @ np.array(b.astype(mx.float32)).T + 1
    assert np.allclose(out, want, atol=1e-5)


def test_atomics() -> None:
    kernel = inline("", ("x",), ("out",))
    vars(kernel)["_functions"] = {}
    vars(kernel)["_functions"][()] = mx.fast.metal_kernel(
        name="histogram",
        input_names=["x"],
        output_names=["out"],
        source="uint i = thread_position_in_grid.x;"
        "atomic_fetch_add_explicit(&out[x[i] % 8], 1, memory_order_relaxed);",
        atomic_outputs=True,
    )
    values = [mx.arange(96, dtype=mx.uint32)]
    out = go("", values, (8,), mx.uint32, threads=96, init=0, kernel=kernel)
    assert (out == 12).all()


def test_threadgroup_atomics() -> None:
    body = """
      threadgroup atomic_uint n; uint t = thread_index_in_threadgroup;
      if (t == 0) atomic_store_explicit(&n, 0u, memory_order_relaxed);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (x[t] > 9) atomic_fetch_add_explicit(&n, 1u, memory_order_relaxed);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      out[t] = atomic_load_explicit(&n, memory_order_relaxed);"""
    out = go(body, [mx.arange(64)], (64,), mx.uint32, threads=64, threadgroup=64)
    assert (out == 54).all()


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_conversions(dtype: mx.Dtype) -> None:
    """Every value of 16 bits to float and back, and floats rounded to nearest even."""
    body = """uint i = thread_position_in_grid.x;
      out[2 * i] = T(float(x[i]));
      out[2 * i + 1] = T(y[i]);"""
    bits = np.arange(1 << 16, dtype=np.uint16)
    small = mx.array(bits).view(dtype)
    random = np.random.default_rng(1)
    wild = random.integers(0, 1 << 32, 1 << 15, dtype=np.uint32).view(np.float32)
    near = (random.normal(size=1 << 15) * 10.0 ** random.integers(-9, 6, 1 << 15)).astype(
        np.float32
    )
    floats = np.concatenate([wild, near])
    launch = Launch((1 << 16, 1, 1), (256, 1, 1), (("T", dtype),), ((1 << 16, 2),), (dtype,))
    (out,) = run(inline(body, ("x", "y"), ("out",)), [small, mx.array(floats)], launch)
    got = np.array(out.view(mx.uint16))
    plain = ~np.isnan(np.array(small.astype(mx.float32))) & ~denormal(bits, dtype)
    assert (got[plain, 0] == bits[plain]).all()
    want = np.array(mx.array(floats).astype(dtype).view(mx.uint16))
    rounded = ~np.isnan(floats) & ~denormal(want, dtype) & (np.abs(floats) >= 2.0**-126)
    assert rounded.sum() > 50000
    assert (got[rounded, 1] == want[rounded]).all()


def denormal(bits: np.ndarray[Any, Any], dtype: mx.Dtype) -> np.ndarray[Any, Any]:
    """Which of them are denormal as floats; a half's denormals are normal floats."""
    if dtype == mx.float16:
        return np.zeros(bits.shape, bool)
    return (bits & 0x7F80 == 0) & (bits & 0x7F != 0)


def test_halves_round_after_each_operation() -> None:
    body = "out[thread_position_in_grid.x] = x[0] * x[1] + x[2];"
    values = mx.array([1.001, 3.003, 1000.0], dtype=mx.float16)
    product = np.float16(np.array(values)[0] * np.array(values)[1])
    out = go(body, [values], (32,), mx.float16)
    assert (out == np.float16(product + np.float16(1000))).all()


def test_denormals_are_flushed() -> None:
    body = "out[thread_position_in_grid.x] = x[0] * 0.5f;"
    assert (go(body, [mx.array([1.5e-38])], (32,)) == 0).all()


def test_literals_are_floats() -> None:
    body = "out[thread_position_in_grid.x] = x[0] + 0.1 + 1e-1 + 3. + .5 - 0.25f + 0x1e5;"
    want = np.float32(0.2)
    for literal in (0.1, 0.1, 3, 0.5, -0.25, 0x1E5):
        want = np.float32(want + np.float32(literal))
    assert (go(body, [mx.array([0.2])], (32,)) == want).all()
