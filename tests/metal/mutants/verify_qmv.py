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
    Mutant("lanes not added up", "simd_sum(result[c][m])", "result[c][m]"),
    Mutant("one step too many along K", "k < K; k += 32 * VALUES", "k <= K; k += 32 * VALUES"),
    Mutant(
        "one step too few along K", "k < K; k += LANES * values", "k + 32 < K; k += LANES * values"
    ),
    Mutant(
        "scale of the first group",
        "scales[(tile.column + c) * (K / GROUP) + k / GROUP]",
        "scales[(tile.column + c) * (K / GROUP)]",
    ),
    Mutant(
        "outputs beyond the last",
        "EDGE ? clamp(N - tile.column, 0, COLUMNS) : COLUMNS",
        "COLUMNS",
    ),
    Mutant("rows beyond the last", "tile.rows = min(ROWS, rows - tile.row);", "tile.rows = ROWS;"),
    Mutant(
        "every lane stores",
        "simd_sum(result[c][m]);\n      if (tile.along == 0 && c <",
        "simd_sum(result[c][m]);\n      if (c <",
    ),
    Mutant("sum of x in another order", "together = BITS == 8 ? 1 :", "together = BITS != 3 ? 1 :"),
    Mutant("sum of x in the input's type", "float part = float(x[i]);", "auto part = x[i];"),
    Mutant("products added one by one", "if (BITS == 2 || BITS == 4) {", "if (BITS == 2) {"),
    Mutant("second byte not moved up", "(x[i] * 256.0f)", "x[i]"),
    Mutant("x not divided", "float(1 << (i * BITS % window_bits<BITS>()))", "1.0f"),
    Mutant(
        "scale applied to each product",
        "return scale * a + sum * bias;",
        "return scale * (a + sum * (bias / scale));",
    ),
    Mutant("lanes of another column added", "distance = LANES / 2;", "distance = 16;"),
    Mutant("word boundary", "<< (32 - shift)", "<< (31 - shift)"),
    Mutant("shift by 32", "if (shift + BITS > 32) {", "if (shift + BITS >= 32) {"),
    Mutant(
        "weights of the last row read again",
        "c < tile.columns);\n    }",
        "true);\n    }",
    ),
    Mutant(
        "weights of the first column read again",
        "tile.column + c, k, c <",
        "tile.column + c / 2 * 2, k, c <",
    ),
    Mutant(
        "weights for each lane",
        "w[(tile.column + c) * (K / VALUES * units) + k / VALUES * units + i]",
        "w[(tile.column + c) * (K / VALUES * units) + k / VALUES * units]",
    ),
)


def cases() -> Iterator[Case]:
    """Both forms, with edges."""
    for strict, product in (
        (True, Matmul(2, 10, 512, 64, 4, mx.float32)),
        (True, Matmul(9, 5, 160, 32, 3, mx.float16)),
        (False, Matmul(2, matmul.WIDE + 3, 64, 64, 3, mx.bfloat16)),
        (False, Matmul(3, 10, 64, 64, 4, mx.float32)),
    ):
        yield case(product, strict)


def case(product: Matmul, strict: bool) -> Case:
    """One product by one form."""
    x, matrix = make(product)
    expected = [mlx_rows(x, matrix, fused=fused) for fused in (True, False)] if strict else []

    def good(outputs: Outputs) -> bool:
        once = -(-product.rows // matmul.QMV_ROWS)
        ours = (outputs[0], outputs.unfused[0])
        return (
            right(outputs[0], x, matrix)
            and outputs.report.traffic["w"].most == once
            and all(same_bits(y, bits) for y, bits in zip(ours, expected, strict=False))
        )

    return Case(matmul.QMV, *matmul.qmv_call(x, matrix, strict=strict), good)
