"""What may go wrong in verify_qmv_strict, by one edit each."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
from harness import Case, Mutant
from matrices import Matmul

from macspec.metal.matmul import STRICT

from .verify_qmv import case

MUTANTS = (
    Mutant("lanes not added up", "simd_sum(result[c][m])", "result[c][m]"),
    Mutant("one step too many along K", "k < K; k += 32 * VALUES", "k <= K; k += 32 * VALUES"),
    Mutant(
        "scale of the first group",
        "scales[(tile.column + c) * (K / GROUP) + k / GROUP]",
        "scales[(tile.column + c) * (K / GROUP)]",
    ),
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
    Mutant(
        "weights for each lane",
        "w[(tile.column + c) * (K / VALUES * units) + k / VALUES * units + i]",
        "w[(tile.column + c) * (K / VALUES * units) + k / VALUES * units]",
    ),
    Mutant(
        "outputs beyond the last",
        "EDGE ? clamp(N - tile.column, 0, COLUMNS) : COLUMNS",
        "COLUMNS",
    ),
    Mutant("rows beyond the last", "tile.rows = min(ROWS, rows - tile.row);", "tile.rows = ROWS;"),
)


def cases() -> Iterator[Case]:
    """MLX's fast form and its general one, with edges."""
    yield case(Matmul(2, 10, 512, 64, 4, mx.float32), STRICT)
    yield case(Matmul(9, 5, 160, 32, 3, mx.float16), STRICT)
