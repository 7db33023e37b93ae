"""What may go wrong in verify_qmt, by one edit each; the rest is in verify_qmm's."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
from harness import Case, Mutant, Outputs
from matrices import Matmul, make, right

from macspec.metal import matmul

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
MUTANTS = (
    Mutant("another size of matrices", "16, 32, 16, false", "16, 16, 32, false"),
    Mutant("weights not turned", "16, 32, 16, false, true,", "16, 32, 16, false, false,"),
    Mutant("half of the right operand", "i < 16; i++) {\n    b[i]", "i < 8; i++) {\n    b[i]"),
    Mutant("sums not carried on", "c[i] = sums[i];", "c[i] = 0;"),
    Mutant("more elements than a lane has", "i < 8; i++) {\n    a[i]", "i < 9; i++) {\n    a[i]"),
    Mutant("chunks of another quarter", "block + quarter * values", "block + quarter / 2 * values"),
    Mutant("weights of the next row", "first + at + j * 8", "first + at * 2 + j * 8"),
    Mutant("weights beyond the last", "!EDGE || (n < N && k < K)", "!EDGE || n < N"),
    Mutant("outputs of the other sixteen", "i % 16 / 8 * 16", "i % 16 / 8 * 8"),
    Mutant("outputs of another row", "i % 8 / 4 * 8", "i % 8 / 4 * 4"),
    Mutant("rows beyond the last read", "m < rows && (!EDGE || k < K)", "!EDGE || k < K"),
    Mutant("inputs of the next step", "k + i + step]", "k + i + step + 1]"),
    Mutant("one barrier for both", f"}}\n  {BARRIER}\n}}", "}\n}"),
    Mutant("some lanes multiply", "multiply<T>(", "if (row + tile * 16 < rows) multiply<T>("),
    Mutant("weights in halves always", "T(weight<", "half(weight<"),
)


def cases() -> Iterator[Case]:
    """With edges everywhere, and with the inputs split among threadgroups."""
    for product in (
        Matmul(9, 37, 480, 32, 4, mx.bfloat16),
        Matmul(20, 5, 4096, 64, 4, mx.float16),
    ):
        yield case(product)


def case(product: Matmul) -> Case:
    """One product."""
    x, matrix = make(product)

    def good(outputs: Outputs) -> bool:
        y = outputs[0]
        whole = y if y.ndim == 2 else y.sum(axis=0).astype(x.dtype)
        once = outputs.report.traffic["w"].most == 1
        return right(whole, x, matrix, rounded=True) and once

    return Case(matmul.QMT, *matmul.call(matmul.QMT.name, x, matrix), good)
