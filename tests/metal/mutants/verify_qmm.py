"""What may go wrong in verify_qmm, by one edit each."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
from harness import Case, Mutant, Outputs
from matrices import Matmul, make, right

from macspec.metal import matmul

WRITTEN = "threadgroup_barrier(mem_flags::mem_threadgroup);\n  if (simdgroup < kept)"
READ = "threadgroup_barrier(mem_flags::mem_threadgroup);\n}"
MUTANTS = (
    Mutant("no barrier after the sums are written", WRITTEN, "if (simdgroup < kept)"),
    Mutant("no barrier before they are overwritten", READ, "}"),
    Mutant(
        "a barrier for the simdgroup only",
        WRITTEN,
        WRITTEN.replace("threadgroup_barrier", "simdgroup_barrier"),
    ),
    Mutant(
        "a barrier for device memory only",
        WRITTEN,
        WRITTEN.replace("mem_threadgroup", "mem_device"),
    ),
    Mutant("a barrier that some reach", READ, "if (simdgroup < kept) " + READ),
    Mutant(
        "all simdgroups write", "simdgroup >= kept && simdgroup < 2 * kept", "simdgroup >= kept"
    ),
    Mutant("shared memory too small", "SIMDGROUPS / 2 * COUNT * 64", "SIMDGROUPS / 2 * COUNT * 32"),
    Mutant("inputs beyond the last", "m < rows && (!EDGE || k < K)", "m < rows"),
    Mutant("rows beyond the last read", "m < rows && (!EDGE || k < K)", "!EDGE || k < K"),
    Mutant("weights beyond the last", "!EDGE || (n < N && k < K)", "!EDGE || n < N"),
    Mutant("outputs beyond the last written", "if (m < rows && n + j < N)", "if (m < rows)"),
    Mutant("another layout of rows", "int(lane / 16 * 4 + lane / 2 % 4)", "int(lane / 4)"),
    Mutant("blocks taken twice", "block += parts * 8 * values", "block += 8 * values"),
    Mutant("the second row's weights twice", "chunks[strip][0], i", "chunks[strip][1], i"),
    Mutant("all simdgroups store", "if (simdgroup == 0)", "if (simdgroup < 2)"),
    Mutant("parts on top of each other", "y + (split * rows + m) * N", "y + m * N"),
    Mutant(
        "rows without inputs are skipped by some lanes",
        "simdgroup_multiply_accumulate(",
        "if (row + tile * 8 < rows) simdgroup_multiply_accumulate(",
    ),
    Mutant("sums not cleared", "sums[i] = make_filled", "sums[0] = make_filled"),
)


def cases() -> Iterator[Case]:
    """With edges everywhere, and with the inputs split among threadgroups."""
    for product in (
        Matmul(9, 37, 480, 32, 4, mx.float32),
        Matmul(4, 5, 4096, 64, 4, mx.bfloat16),
    ):
        yield case(product)


def case(product: Matmul) -> Case:
    """One product."""
    x, matrix = make(product)

    def good(outputs: Outputs) -> bool:
        y = outputs[0]
        whole = y if y.ndim == 2 else y.sum(axis=0).astype(x.dtype)
        return right(whole, x, matrix) and outputs.report.traffic["w"].most == 1

    return Case(matmul.QMM, *matmul.call(matmul.QMM.name, x, matrix), good)
