"""Registers of a lane, by LLVM's allocator for another GPU, beside those of MLX's own kernels.

MLX's kernel for several rows is known to run well on Macs, and by this count it needs more of them
than macspec's products: the count is an upper bound, and what these tests find is a rise in it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import mlx.core as mx
import pytest
from harness.headers import flattened
from harness.mlx_kernels import QUANTIZED, TYPES, mlx_text
from harness.registers import MOST, registers
from harness.running import LAUNCH
from harness.text import Text, export

from macspec.metal import matmul, verify_attention
from macspec.metal.kernel import MOST_THREADGROUP_BYTES, Kernel, Launch
from macspec.metal.matmul import QMM, QMV, Matrix

PLENTY = 256
FORMATS = [*((bits, 64) for bits in matmul.BITS), *matmul.FLOATS]


def text_of(kernel: Kernel, arrays: list[mx.array], launch: Launch) -> tuple[Text, int]:
    found = export(lambda *inputs: LAUNCH(kernel, inputs, launch), arrays, flattened())
    return found.text, math.prod(found.threadgroup)


def product(kernel: str, rows: int, how: tuple[int, int] | str = (4, 64)) -> tuple[Text, int]:
    """Of a matrix of 4096 to 12288 in bfloat16."""
    affine = not isinstance(how, str)
    bits, group = how if affine else matmul.FLOATS[how]
    packed = mx.zeros((12288, 4096 * bits // 32), mx.uint32)
    scales = mx.zeros((12288, 4096 // group), mx.bfloat16 if affine else mx.uint8)
    mode = matmul.AFFINE if affine else how
    matrix = Matrix(packed, scales, scales if affine else None, group, bits, mode)
    call = matmul.call(kernel, mx.zeros((rows, 4096), mx.bfloat16), matrix)
    return text_of(matmul.KERNELS[kernel], *call)


def mlx_wide(rows: int) -> Text:
    kind = TYPES[mx.bfloat16]
    return mlx_text(QUANTIZED, "affine_qmv_wide", f"{kind}, 64, 4, {rows}, 8, false", {"T": kind})


@pytest.mark.parametrize("rows", range(2, 9))
def test_up_to_eight_rows_of_4_bits_fit(rows: int) -> None:
    found = registers(*product(QMV.name, rows))
    assert found.spilled == 0
    assert found.count <= MOST


@pytest.mark.parametrize("rows", [8, 16, 24])
def test_up_to_24_rows_in_matrices_fit(rows: int) -> None:
    found = registers(*product(QMM.name, rows))
    assert found.spilled == 0
    assert found.count <= MOST
    assert found.threadgroup_bytes == 512 * rows


@pytest.mark.parametrize("how", FORMATS, ids=str)
@pytest.mark.parametrize(("kernel", "rows"), [(QMV.name, 8), (QMM.name, 32)])
def test_no_product_needs_more_than_mlx_of_two_rows(
    kernel: str, rows: int, how: tuple[int, int] | str
) -> None:
    """Where values find no register, there are fewer of them than in MLX's kernel."""
    ours, theirs = product(kernel, rows, how), (mlx_wide(2), 64)
    assert registers(*ours).spilled <= registers(*theirs).spilled
    found = registers(*ours, PLENTY)
    assert found.spilled == 0
    assert found.count <= registers(*theirs, PLENTY).count


@pytest.mark.parametrize("width", verify_attention.WIDTHS)
def test_attention(width: int) -> None:
    """Accumulators of wide heads do not fit; timing decides where these are used."""
    queries, keys = (
        mx.zeros((1, 4, 8, width), mx.bfloat16),
        mx.zeros((1, 1, 4096, width), mx.bfloat16),
    )
    arrays, launch = verify_attention.attention_call(
        queries, keys, keys, verify_attention.causal(8), 1.0
    )
    text, threads = text_of(verify_attention.KERNEL, arrays, launch)
    found = registers(text, threads)
    assert (found.spilled == 0) == (width <= 128)
    assert registers(text, threads, PLENTY).spilled == 0
    assert found.threadgroup_bytes == launch.threadgroup_bytes


def test_too_many_accumulators_are_seen() -> None:
    text, threads = product(QMV.name, 8)
    more = replace(text, source=text.source.replace("COLUMNS = 4", "COLUMNS = 16"))
    assert more != text
    assert registers(more, threads).spilled > 100


def test_a_launch_with_too_much_threadgroup_memory_is_refused() -> None:
    launch = Launch((32, 1, 1), (32, 1, 1), (), ((1,),), (mx.float32,))
    replace(launch, threadgroup_bytes=MOST_THREADGROUP_BYTES)
    with pytest.raises(ValueError, match="32772 bytes of threadgroup memory; a GPU has 32768"):
        replace(launch, threadgroup_bytes=MOST_THREADGROUP_BYTES + 4)
