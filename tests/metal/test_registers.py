"""Registers of a lane, by LLVM's allocator for another GPU: texts that take too many are refused.

The count is an upper bound: by it MLX's own kernel for two rows, known to run well on Macs, spills.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import export
import mlx.core as mx
import pytest
from harness import launching
from harness.headers import flattened
from harness.mlx_kernels import QUANTIZED, TYPES, mlx_text
from harness.registers import MOST, OF_A_CORE, registers
from harness.running import LAUNCH
from harness.text import Text
from harness.text import export as exported

from macspec.metal import matmul, verify_attention
from macspec.metal.kernel import MOST_THREADGROUP_BYTES, Kernel, Launch
from macspec.metal.matmul import QMM, QMT, QMV, Matrix
from macspec.metal.verify_attention import PLAIN, Held, Packing

FORMATS = [*((bits, 64) for bits in matmul.BITS), *matmul.FLOATS]


def text_of(kernel: Kernel, arrays: list[mx.array], launch: Launch) -> tuple[Text, int]:
    found = exported(lambda *inputs: LAUNCH(kernel, inputs, launch), arrays, flattened())
    return found.text, math.prod(found.threadgroup)


def product(
    kernel: str, rows: int, how: tuple[int, int] | str = (4, 64), outputs: int = 12288
) -> tuple[Text, int]:
    """Of a matrix of 4096 inputs in bfloat16."""
    affine = not isinstance(how, str)
    bits, group = how if affine else matmul.FLOATS[how]
    packed = mx.zeros((outputs, 4096 * bits // 32), mx.uint32)
    scales = mx.zeros((outputs, 4096 // group), mx.bfloat16 if affine else mx.uint8)
    mode = matmul.AFFINE if affine else how
    matrix = Matrix(packed, scales, scales if affine else None, group, bits, mode)
    call = matmul.call(kernel, mx.zeros((rows, 4096), mx.bfloat16), matrix)
    return text_of(matmul.KERNELS[kernel], *call)


def mlx_wide(rows: int) -> Text:
    kind = TYPES[mx.bfloat16]
    return mlx_text(QUANTIZED, "affine_qmv_wide", f"{kind}, 64, 4, {rows}, 8, false", {"T": kind})


def assert_fits(text: Text, threads: int) -> None:
    """Refuses a text that LLVM cannot give registers: it would be slow or not launch at all."""
    found = registers(text, threads)
    assert found.spilled == 0, f"{found.spilled} values find no register"
    assert found.count <= MOST
    assert threads * found.count * 4 <= OF_A_CORE
    assert found.threadgroup_bytes <= MOST_THREADGROUP_BYTES


def products() -> Iterator[object]:
    """Every format at every number of tiles; all but the largest of each are left to the slow run.

    2 bits in matrices of more than 8 rows are not among them: 1 value is too many at 16 rows, 19
    at 32. Each scale is divided in eight ways, which LLVM keeps and could compute again.
    """
    for kernel, counts in ((QMV, range(8, 1, -1)), (QMM, (32, 24, 16, 8)), (QMT, (32, 16))):
        for how, rows in itertools.product(FORMATS, counts):
            if kernel is QMM and how == (2, 64) and rows > 8:
                continue
            marks = () if rows == counts[0] else pytest.mark.slow
            yield pytest.param(
                kernel.name, rows, how, marks=marks, id=f"{kernel.name}-{rows}-{how}"
            )


@pytest.mark.parametrize(("kernel", "rows", "how"), products())
def test_every_product_fits(kernel: str, rows: int, how: tuple[int, int] | str) -> None:
    assert_fits(*product(kernel, rows, how))


def attention(width: int, value_width: int, packing: Packing = PLAIN) -> tuple[Text, int, Launch]:
    def held(size: int) -> Held:
        if not packing.bits:
            return mx.zeros((1, 1, 65_536, size), mx.bfloat16)
        scales = mx.zeros((1, 1, 65_536, size // packing.group_size), mx.bfloat16)
        return mx.zeros((1, 1, 65_536, size * packing.bits // 32), mx.uint32), scales, scales

    queries = mx.zeros((1, 4, 8, width), mx.bfloat16)
    arrays, launch = verify_attention.attention_call(
        queries, held(width), held(value_width), verify_attention.causal(8), 1.0, packing
    )
    return *text_of(verify_attention.KERNEL, arrays, launch), launch


@pytest.mark.parametrize(
    ("width", "value_width", "packing"),
    [
        *((it, it, PLAIN) for it in verify_attention.WIDTHS),
        (96, 256, PLAIN),
        (192, 128, PLAIN),
        (256, 256, Packing(4, 64)),
    ],
)
def test_attention_of_every_head_size_fits(width: int, value_width: int, packing: Packing) -> None:
    text, threads, launch = attention(width, value_width, packing)
    assert_fits(text, threads)
    assert registers(text, threads).threadgroup_bytes == launch.threadgroup_bytes


def others() -> list[tuple[Text, int]]:
    """Every text of recurrences, choices and walks in bfloat16."""
    found: dict[str, tuple[Text, int]] = {}
    intact: Any = Kernel.__call__

    def call(kernel: Kernel, arrays: Sequence[mx.array], launch: Launch) -> list[mx.array]:
        made = exported(lambda *inputs: intact(kernel, inputs, launch), list(arrays), flattened())
        found[made.text.name] = made.text, math.prod(made.threadgroup)
        sizes = zip(launch.shapes, launch.dtypes, strict=True)
        return [mx.zeros(shape, dtype) for shape, dtype in sizes]

    with launching(call):
        for kind in (export._recur, export._choose, export._walk):
            kind(mx.bfloat16)
    return list(found.values())


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(it, marks=pytest.mark.slow) for it in range(1, 5))]
)
def test_recurrences_choices_and_walks_fit(part: int) -> None:
    for text, threads in others()[part::5]:
        assert_fits(text, threads)


@pytest.mark.slow
@pytest.mark.parametrize("how", FORMATS, ids=str)
@pytest.mark.parametrize(
    ("kernel", "rows"), [(QMV.name, 6), (QMV.name, 7), (QMV.name, 8), (QMM.name, 32)]
)
def test_ragged_products_need_no_more_than_mlx_of_two_rows(
    kernel: str, rows: int, how: tuple[int, int] | str
) -> None:
    """Outputs that are no whole tiles, and 2 bits: some values find no register."""
    ours, theirs = product(kernel, rows, how, 12285), (mlx_wide(2), 64)
    assert registers(*ours).spilled <= registers(*theirs).spilled


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
