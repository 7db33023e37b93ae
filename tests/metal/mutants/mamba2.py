"""mamba2, broken on purpose."""

from __future__ import annotations

import mlx.core as mx
from harness import Case, Mutant, Outputs
from recurrent import close, scan

from macspec.metal.mamba2 import KERNEL

MUTANTS = (
    Mutant("a kept row too many", "row < kept", "row <= kept"),
    Mutant("a kept row too few", "row < kept", "row < kept - 1"),
    Mutant("every pending row is kept", "row < kept", "row < pending_x_shape[1]"),
    Mutant(
        "the kept rows start at the second", "int row = 0; row < kept", "int row = 1; row < kept"
    ),
    Mutant("the kept rows are read in this pass", "load(b_, old_b", "load(b_, new_b"),
    Mutant("one row for all that are kept", "old_x + row * pending_x_strides[1]", "old_x"),
    Mutant("a row's step from another", "old_dt[row * pending_dt_strides[1]]", "old_dt[0]"),
    Mutant("a row of this pass is left out", "row < rows;", "row < rows - 1;"),
    Mutant("a row beyond this pass", "row < rows;", "row <= rows;"),
    Mutant(
        "rows that do not know each other",
        "fold(held, x_, b_, a, new_dt",
        "if (row == 0) fold(held, x_, b_, a, new_dt",
    ),
    Mutant(
        "the state from before the kept rows", "= held[l][i];\n", "= state[place + l * S + i];\n"
    ),
    Mutant(
        "the state of the pass before in this one",
        "fold(held, x_, b_, a, new_dt",
        "held[0][0] = state[place]; fold(held, x_, b_, a, new_dt",
    ),
    Mutant(
        "lines that a simdgroup shares",
        "thread_position_in_grid.y) * LINES",
        "thread_position_in_grid.y)",
    ),
    Mutant("the group of another head", "head / (heads / b_shape[2])", "head % b_shape[2]"),
    Mutant("a group a head", "head / (heads / b_shape[2])", "head"),
    Mutant("the wrong group in the outputs", "new_c = c + group *", "new_c = c + 0 *"),
    Mutant("lanes that share a column", "first = lane * PART", "first = lane"),
    Mutant("the columns of another order", "first = lane * PART", "first = lane * 5 % 32 * PART"),
    Mutant("the state without its decay", "decay * held[l][i] + db_by_x", "held[l][i] + db_by_x"),
    Mutant("decay that grows", "a = -fast::exp", "a = fast::exp"),
    Mutant("decay without the step", "fast::exp(a * dt)", "fast::exp(a)"),
    Mutant("the input without the step", "x[l] * dt * b[i]", "x[l] * b[i]"),
    Mutant(
        "another order of products",
        "const float db_by_x = x[l] * dt * b[i];",
        "const float db_by_x = dt * b[i] * x[l];",
    ),
    Mutant(
        "the input decays too", "decay * held[l][i] + db_by_x", "decay * (held[l][i] + db_by_x)"
    ),
    Mutant("the skip is lost", "acc + x_[l] * static_cast<float>(d[head])", "acc"),
    Mutant("the skip of another head", "d[head]", "d[group]"),
    Mutant("no sum over the lanes", "acc = simd_sum(acc);", ""),
    Mutant("every lane writes", "if (lane == 0) {", "{"),
    Mutant(
        "the last lines are not written",
        "l < LINES; l++) {\n    float acc",
        "l < LINES - 1; l++) {\n    float acc",
    ),
    Mutant(
        "the output in another place",
        "(size_t(row) * heads + head) * width",
        "size_t(head) * width",
    ),
    Mutant("elements in the way", "from[i * step]", "from[i]"),
    Mutant("weights in the constant space", "d[head]", "((const constant float*)d)[head]"),
)


def spread(array: mx.array) -> mx.array:
    """The same with the last dimension's elements far apart."""
    return mx.contiguous(array.swapaxes(1, 3)).swapaxes(1, 3) if array.ndim == 4 else array


def cases() -> list[Case]:
    """Three rows on two of four that stay; slices with gaps; both with mlx-lm's bits."""

    def case(rows: int, kept: int, state: int, turned: bool) -> Case:
        made = scan(rows, kept, groups=4, width=8, state=state)
        arrays, launch = made.call
        if turned:
            arrays = [*map(spread, arrays[:-1]), arrays[-1]]
        exact = made.by_rows(), made.by_rows(fused=False)

        def right(outputs: Outputs) -> bool:
            bits = [
                mx.array_equal(a, b)
                for found, expected in zip((outputs, outputs.unfused), exact, strict=True)
                for a, b in zip(found, expected, strict=True)
            ]
            return all(bits) and all(map(close, outputs, made.expected))

        return Case(KERNEL, arrays, launch, right)

    return [case(3, 2, 64, False), case(2, 1, 32, True)]
