"""Matrices and caches as large as the kernels take, in sparse files: no index overflows."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from harness.build import plain
from harness.running import prepare
from matrices import Matmul, make, right

from macspec.metal import matmul, verify_attention
from macspec.metal.matmul import MOST_BYTES, QMT, Matrix

INPUTS = 32_768
OUTPUTS = MOST_BYTES // (INPUTS // 2)
LAST = OUTPUTS % 8
"""Outputs that the last threadgroup of every kernel has."""


@pytest.mark.parametrize("kernel", matmul.KERNELS)
def test_the_last_outputs_of_the_largest_matrix(kernel: str, tmp_path: Path) -> None:
    x, end = make(Matmul(2, LAST, INPUTS, 64, 4, mx.float16))
    assert OUTPUTS * INPUTS // 2 > 2**31 - INPUTS
    # Never computed: only its sizes count.
    shapes = ((OUTPUTS, it.shape[1]) for it in end.operands)
    whole = Matrix(*map(mx.zeros, shapes, (it.dtype for it in end.operands)), 64, 4)
    _, launch = matmul.call(kernel, x, whole)
    inputs, _ = matmul.call(kernel, x, end)
    prepared = prepare(matmul.KERNELS[kernel], inputs, launch)
    for name in ("w", "scales", "biases"):
        last = prepared.inputs[name]
        file = np.memmap(tmp_path / name, last.dtype, "w+", shape=(OUTPUTS, last.shape[1]))
        file[-LAST:] = last
        prepared.inputs[name] = file
    done = prepared.execute(plain(prepared.text, fused=True), checked=False, order=1, most=1)
    assert right(prepared.arrays(done)[0][..., -LAST:], x, end, rounded=kernel == QMT.name)


def test_heads_that_lie_further_apart_than_32_bits_count(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    file = np.memmap(tmp_path / "cache", np.float16, "w+", shape=(1, 2, 2**25 + 1, 64))
    cache = file[:, :, :41]
    cache[...] = random.standard_normal(cache.shape)
    held = mx.array(np.array(cache))
    queries = mx.array(random.standard_normal((1, 4, 3, 64)), mx.float16)
    sees = verify_attention.causal(3)
    call = verify_attention.attention_call(queries, held, held, sees, 0.125)
    prepared = prepare(verify_attention.KERNEL, *call)
    prepared.inputs.update(keys=cache, values=cache)
    done = prepared.execute(plain(prepared.text, fused=True), checked=False)
    expected = verify_attention.reference(queries, held, held, sees=sees, scale=0.125)
    assert mx.allclose(prepared.arrays(done)[0], expected, atol=2e-3)
