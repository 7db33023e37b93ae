"""What unpacking a weight costs, counted in the optimised code of the kernels' own text."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import mlx.core as mx
import pytest
from harness.build import optimised
from harness.running import prepare

from macspec.metal import matmul
from macspec.metal.estimates import UNPACKING
from macspec.metal.kernel import Kernel, Launch

SLOW = {"lshr", "shl", "ashr", "uitofp", "sitofp", "fptoui", "fptosi"}
"""Instructions that the M1 and M2 issue at a quarter of the rate."""
FAST = {"and", "or", "fsub", "fmul", "fadd"}
ADDRESSES = 6
"""Instructions that find a lane's chunk."""
CHUNK = """
using namespace macspec;
constexpr int values = chunk_values<BITS>();
const int lane = int(thread_position_in_grid.x);
const Chunk<BITS> chunk = read_chunk<BITS, GROUP, FLOAT>(w, scales, biases, 64, lane, 0, true);
#pragma unroll
for (int i = 0; i < values; i++) {
  y[lane * 64 + i] = weight<BITS, FLOAT>(chunk, i);
}
"""


def operations(bits: int, group: int, scale: mx.Dtype) -> Counter[str]:
    """Of a lane that unpacks one chunk."""
    kernel = Kernel("unpack", ("w", "scales", "biases"), ("y",))
    header = (Path(matmul.__file__).parent / "weights.metal").read_text(encoding="utf-8")
    kernel.__dict__.update(header=header, source=CHUNK)
    rows = 32
    scales = mx.zeros((rows, 64 // group), scale)
    arrays = [mx.zeros((rows, 2 * bits), mx.uint32), scales, scales]
    constants = ("BITS", bits), ("GROUP", group), ("FLOAT", scale == mx.uint8)
    launch = Launch((rows, 1, 1), (rows, 1, 1), constants, ((rows, 64),), (mx.float32,))
    lines = optimised(prepare(kernel, arrays, launch).text).splitlines()
    return Counter(it[1] for it in (re.match(r"\s+%\S+ = (\w+) ", line) for line in lines) if it)


@pytest.mark.parametrize("weights", UNPACKING)
def test_unpacking_keeps_its_budget(weights: int | str) -> None:
    bits, group = (weights, 64) if isinstance(weights, int) else matmul.FLOATS[weights]
    affine = isinstance(weights, int)
    found = operations(bits, group, mx.float32 if affine else mx.uint8)
    values = {2: 16, 4: 16, 6: 16, 8: 8}.get(bits, 32)
    budget = UNPACKING[weights]
    slow, fast = (sum(found[name] for name in names) for names in (SLOW, FAST))
    assert found["or" if affine else "fpext"] >= values, "the code that unpacks is there"
    assert slow <= budget.slow * values + ADDRESSES, found
    assert fast <= budget.fast * values + ADDRESSES, found
