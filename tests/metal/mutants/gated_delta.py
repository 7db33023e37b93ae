"""gated_delta, broken on purpose."""

from __future__ import annotations

import mlx.core as mx
from harness import Case, Mutant, Outputs
from recurrent import close, delta_pass

from macspec.metal.gated_delta import KERNEL

MUTANTS = (
    Mutant("a kept row too many", "t < kept", "t <= kept"),
    Mutant("a kept row too few", "t < kept", "t < kept - 1"),
    Mutant("every pending row is kept", "t < kept", "t < old_k_shape[1]"),
    Mutant("the kept rows start at the second", "int t = 0; t < kept", "int t = 1; t < kept"),
    Mutant("the keys of this pass for kept rows", "(s, old_k, at", "(s, new_k, at"),
    Mutant("the gates of this pass for kept rows", "at, old_g, own", "at, new_g, own"),
    Mutant("the values of this pass for kept rows", "old_v[own", "new_v[own"),
    Mutant("beta of the first kept row", "float(old_beta[own])", "float(old_beta[head])"),
    Mutant("a row of this pass is left out", "t < q_shape[1]", "t < q_shape[1] - 1"),
    Mutant("a row beyond this pass", "t < q_shape[1]", "t <= q_shape[1]"),
    Mutant("the state from before the kept rows", "after[place + i] = s[i]",
           "after[place + i] = state[place + i]"),
    Mutant("a state that is not written", "after[place + i] = s[i]",
           "if (kept) after[place + i] = s[i]"),
    Mutant("the state before this pass in each row", "  float part[PARTS];\n  for (int p = 0; p",
           "  s[0] = state[place];\n  float part[PARTS];\n  for (int p = 0; p"),
    Mutant("decay after the update", "s[i] = s[i] * gate<BY_COLUMN>(g, row_and_head, WIDTH, "
           "column + i);\n      sum += s[i] * float(k[at + i]);",
           "sum += s[i] * float(k[at + i]);\n      s[i] = s[i] * gate<BY_COLUMN>(g, row_and_head, "
           "WIDTH, column + i);"),
    Mutant("no decay", "s[i] = s[i] * gate<BY_COLUMN>(g, row_and_head, WIDTH, column + i);", ""),
    Mutant("one gate for all columns", "g[row_and_head * width + column]",
           "g[row_and_head * width]"),
    Mutant("the gates of another lane", "WIDTH, column + i)", "WIDTH, i)"),
    Mutant("beta of the value alone", "(v - sum_of_parts<LANES>(part)) * beta",
           "v * beta - sum_of_parts<LANES>(part)"),
    Mutant("no beta", "(v - sum_of_parts<LANES>(part)) * beta", "v - sum_of_parts<LANES>(part)"),
    Mutant("the state is taken for its row's value", "v - sum_of_parts<LANES>(part)", "v"),
    Mutant("heads of keys in turns", "head / (HEADS / KEY_HEADS)", "head % KEY_HEADS"),
    Mutant("keys by heads of values", "head / (HEADS / KEY_HEADS)", "head"),
    Mutant("parts added one after the other", "int n = 1; n < PARTS; n *= 2",
           "int n = 1; n < 1; n *= 2"),
    Mutant("pairs of parts at another distance", "part[i] += part[i + n]",
           "part[i] += part[PARTS - n]"),
    Mutant("lanes in another order", "simd_shuffle_xor(sum, ushort(n))",
           "simd_shuffle_xor(sum, ushort(LANES / 2 / n))"),
    Mutant("the columns one after the other", "int i = p * EACH; i < (p + 1) * EACH; i++) sum += s",
           "int i = 0; i < COLUMNS; i++) if (p == 0) sum += s"),
    Mutant("lanes not added up", "sum += simd_shuffle_xor(sum, ushort(n))", "sum += 0 * n"),
    Mutant("lanes of another row added", "ushort(n))", "ushort(2 * n))"),
    Mutant("every lane stores", "if (column == 0) y[own", "y[own"),
    Mutant("rows of the state in turns", "% LANES * COLUMNS", "/ VALUE_WIDTH % LANES * COLUMNS"),
    Mutant("the state of another head", "(head * VALUE_WIDTH + value)",
           "(key_head * VALUE_WIDTH + value)"),
    Mutant("the first head's beta", "beta = float(new_beta[own])", "beta = float(new_beta[t])"),
    Mutant("sums in the input's type", "float sum = 0;\n    for", "T sum = 0;\n    for"),
)  # fmt: skip


def cases() -> list[Case]:
    """Both gates, several lanes, shared keys, and rows of the pass before that do not stay."""
    return [
        case(2, 2, key_heads=2, heads=4, width=128, value_width=8, dtype=mx.float16),
        case(3, 1, key_heads=1, heads=2, width=64, value_width=16, by_column=True),
        case(2, 0, key_heads=2, heads=2, width=96, value_width=8),
    ]


def case(rows: int, kept: int, **shape: object) -> Case:
    """A pass, with two more rows pending than are kept."""
    this = delta_pass(rows, kept, **shape)  # type: ignore[arg-type]
    right = [this.by_mlx(fused=fused) for fused in (True, False)]

    def good(outputs: Outputs) -> bool:
        traffic = outputs.report.traffic
        pairs = [*zip(outputs, right[0], strict=True), *zip(outputs.unfused, right[1], strict=True)]
        return (
            all(mx.array_equal(*pair).item() for pair in pairs)
            and all(close(*pair) for pair in zip(outputs, this.expected, strict=True))
            and traffic["state"].least == traffic["state"].most == 1
            and traffic["y"].written == this.rows.v.nbytes
        )

    return Case(KERNEL, *this.call, good)
