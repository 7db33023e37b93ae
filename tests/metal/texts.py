"""Small kernels that keep every rule, for the harness's own tests."""

from __future__ import annotations

import mlx.core as mx
from harness import Outputs, inline, run

from macspec.metal.kernel import Launch

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
LAUNCH = Launch((128, 1, 1), (64, 1, 1), (), ((128,),), (mx.float32,))
X = mx.arange(1, 129, dtype=mx.float32)

REVERSE = f"""
threadgroup float t[64];
uint i = thread_index_in_threadgroup, at = thread_position_in_grid.x;
t[i] = x[at];
{BARRIER}
out[at] = t[63 - i];
"""
NEIGHBOUR = """
threadgroup float t[64];
uint i = thread_index_in_threadgroup, at = thread_position_in_grid.x;
t[i] = x[at];
simdgroup_barrier(mem_flags::mem_threadgroup);
out[at] = t[i ^ 1];
"""
REUSE = f"""
threadgroup float t[64];
uint i = thread_index_in_threadgroup, at = thread_position_in_grid.x;
t[i] = x[at];
{BARRIER}
float y = t[63 - i];
{BARRIER} // before the next round
t[i] = y;
{BARRIER}
out[at] = t[i ^ 33];
"""
THROUGH_DEVICE = """
uint i = thread_index_in_threadgroup, at = thread_position_in_grid.x;
out[at] = x[at];
threadgroup_barrier(mem_flags::mem_device); // written
float y = out[at - i + (63 - i)];
threadgroup_barrier(mem_flags::mem_device); // read
out[at] = y;
"""
STORE = "atomic_store_explicit(&n, 0u, memory_order_relaxed)"
ADD = "atomic_fetch_add_explicit(&n, 1u, memory_order_relaxed)"
LOAD = "atomic_load_explicit(&n, memory_order_relaxed)"
COUNT = f"""
threadgroup atomic_uint n;
uint i = thread_index_in_threadgroup, at = thread_position_in_grid.x;
if (i == 0) {STORE};
{BARRIER}
if (x[at] > 9) {ADD};
{BARRIER} // counted
out[at] = {LOAD};
"""
LANES = """
uint at = thread_position_in_grid.x;
float y = simd_max(x[at]);
float z = simd_shuffle(x[at], ushort(3));
out[at] = y + z;
"""
WIDE = """
uint at = thread_position_in_grid.x;
const device float4* p = (const device float4*)x;
out[at] = p[at / 4][at % 4];
"""
LONG = """
uint at = thread_position_in_grid.x;
const device ulong4* p = (const device ulong4*)x;
out[at] = float(p[at / 8].x & 1);
"""
PRIVATE = """
uint at = thread_position_in_grid.x;
float part[4];
for (uint k = 0; k < 4; k++) part[k] = x[at] * k;
float sum = 0;
for (uint k = 0; k < 4; k++) sum += part[(k + at) % 4];
out[at] = sum;
"""
BITS = """
uint at = thread_position_in_grid.x;
int i = int(x[at]);
out[at] = float((1u << (i % 31)) + uint(100 / i + i * 2));
"""
FILL = """
uint i = thread_position_in_grid.x;
if (i < 2) {
  for (uint k = 0; k < 32; k++) out[64 * i + k] = 0;
  for (uint k = 0; k < 32; k++) out[64 * i + 32 + k] = x[64 * i + k];
}
"""

INTACT = {
    "reverse": REVERSE,
    "neighbour": NEIGHBOUR,
    "reuse": REUSE,
    "through device": THROUGH_DEVICE,
    "count": COUNT,
    "lanes": LANES,
    "wide": WIDE,
    "long": LONG,
    "private": PRIVATE,
    "bits": BITS,
    "fill": FILL,
}


def launch(text: str, **how: bool) -> Outputs:
    """Run a body from ``x`` to ``out``."""
    return run(inline(text, ("x",), ("out",)), [X], LAUNCH, **how)
