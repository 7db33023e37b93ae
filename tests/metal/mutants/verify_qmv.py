"""What may go wrong in verify_qmv, by one edit each."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
from harness import Case, Mutant, Outputs
from matrices import Matmul, make, mlx_rows, right, same_bits

from macspec.metal import matmul

MUTANTS = (
    Mutant(
        "values of the other half of a word",
        "shift < 16 ? chunk.words[word] : chunk.words[word] >> 16",
        "chunk.words[word]",
    ),
    Mutant("values in place with the scale of the first", "(1.0f / float(1 << at))", "1.0f"),
    Mutant("a bit of the next value", "mask = (1u << BITS) - 1;", "mask = (2u << BITS) - 1;"),
    Mutant("the mantissa's own one", "- 8388608.0f", "- 8388607.0f"),
    Mutant("no mask for values that cross words", "number(q & mask)", "number(q & 0x7fffff)"),
    Mutant(
        "one step too few along K", "k < K; k += LANES * values", "k + 32 < K; k += LANES * values"
    ),
    Mutant(
        "outputs beyond the last",
        "EDGE ? clamp(N - column, 0, COLUMNS) : COLUMNS",
        "COLUMNS",
    ),
    Mutant("rows beyond the last", "real = min(ROWS, rows - row);", "real = ROWS;"),
    Mutant("lanes of another column added", "distance = LANES / 2;", "distance = 16;"),
    Mutant("word boundary", "<< (32 - shift)", "<< (31 - shift)"),
    Mutant("shift by 32", "if (shift + BITS > 32) {", "if (shift + BITS >= 32) {"),
    Mutant(
        "weights of the last row read again",
        "if (c < columns) {",
        "{",
    ),
    Mutant(
        "weights of the first column read again",
        "column + c, k, true",
        "column + c / 2 * 2, k, true",
    ),
    Mutant("every lane of a row stores", "along == 0 && c < columns", "c < columns"),
)


def cases() -> Iterator[Case]:
    """With edges, and half a simdgroup for a row of the matrix."""
    yield case(Matmul(2, matmul.WIDE + 3, 64, 64, 3, mx.bfloat16))
    yield case(Matmul(9, 10, 64, 64, 4, mx.float32))


def case(product: Matmul, kernel: str = matmul.QMV.name) -> Case:
    """One product by one form."""
    x, matrix = make(product)
    strict = kernel == matmul.STRICT
    expected = [mlx_rows(x, matrix, fused=fused) for fused in (True, False)] if strict else []

    def good(outputs: Outputs) -> bool:
        once = -(-product.rows // matmul.QMV_ROWS)
        ours = (outputs[0], outputs.unfused[0])
        return (
            right(outputs[0], x, matrix)
            and outputs.report.traffic["w"].most == once
            and all(same_bits(y, bits) for y, bits in zip(ours, expected, strict=False))
        )

    return Case(matmul.KERNELS[kernel], *matmul.call(kernel, x, matrix), good)
