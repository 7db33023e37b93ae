"""verify_attention and its join, broken on purpose."""

from __future__ import annotations

from unittest import mock

import mlx.core as mx
import numpy as np
from harness import Case, Mutant

from macspec.metal import verify_attention
from macspec.metal.verify_attention import (
    JOIN,
    KERNEL,
    Packing,
    attention_call,
    causal,
    join_launch,
    mask,
    reference,
)

MUTANTS = (
    Mutant(
        "no barrier before the tiles are read",
        "threads);\n  threadgroup_barrier(mem_flags::mem_threadgroup);\n  if (first",
        "threads);\n  if (first",
    ),
    Mutant(
        "no barrier before the tiles are filled again",
        "  }\n  threadgroup_barrier(mem_flags::mem_threadgroup);\n}",
        "  }\n}",
    ),
    Mutant(
        "barrier of the wrong memory",
        "  }\n  threadgroup_barrier(mem_flags::mem_threadgroup);\n}",
        "  }\n  threadgroup_barrier(mem_flags::mem_device);\n}",
    ),
    Mutant(
        "barrier only where there are rows",
        "  if (first < lines) {\n    simdgroup_matrix",
        "  if (first >= lines) return;\n  {\n    simdgroup_matrix",
    ),
    Mutant("the tile's end is not padded", "if (key >= count) {", "if (key > count) {"),
    Mutant("keys beyond the length", "min((block + 1) * span, length)", "(block + 1) * span"),
    Mutant("bits behind the row", "(key < own && (mine >>", "((mine >>"),
    Mutant("itself from the length on", "own = before + line % rows", "own = length - 1"),
    Mutant("the tree of another row", "sees[line % rows]", "sees[line / rows]"),
    Mutant("a row does not see itself", "key == own ||", ""),
    Mutant("the committed tokens end too early", "key < before ||", "key < before - 1 ||"),
    Mutant("the lane's other key", "n) * 8 + column + i;", "n) * 8 + column;"),
    Mutant(
        "shares of the same keys",
        "const int key = tile + (share * OWN + n) * 8",
        "const int key = tile + n * 8",
    ),
    Mutant("shares of the same values", "value_tile + ((share * OWN + n)", "value_tile + ((n)"),
    Mutant("shares that overwrite each other", "size_t(block * SHARE + share)", "size_t(block)"),
    Mutant("shares of other rows", "threads / 32 / SHARE, share", "threads / 32, share"),
    Mutant("half of the lanes of a matrix row", "simd_shuffle_xor(x, ushort(8)));", "x);"),
    Mutant(
        "sums of other lanes",
        "return x + simd_shuffle_xor(x, ushort(8));",
        "return x + simd_shuffle_xor(x, ushort(2));",
    ),
    Mutant(
        "the accumulators are not scaled",
        "thread_elements()[1] *= factor;",
        "thread_elements()[1] *= 1;",
    ),
    Mutant("the sum is not scaled", "total *= factor;", "total *= 1;"),
    Mutant(
        "a matrix row below",
        "return int(lane / 16 * 4 + lane / 2 % 4);",
        "return int(lane / 16 * 4 + lane / 2 % 2);",
    ),
    Mutant(
        "the values of another head",
        "values + head * size_t(values_strides[1])",
        "values + head * size_t(keys_strides[1])",
    ),
    Mutant(
        "a padding line overwrites the last", "if (first + at < lines) {\n    const", "{\n    const"
    ),
    Mutant("rows beyond the queries", "min(first + at, lines - 1)", "first + at"),
    Mutant("norms of half the rows", "if (column == 0)", "if (column == 0 && at < 4)"),
    Mutant(
        "stretches that overlap", "int tile = block * span;", "int tile = block * (span - KEYS);"
    ),
    Mutant("half the chunk", "i < KEYS * WIDTH / chunk;", "i < KEYS * WIDTH / chunk / 2;"),
    Mutant("normalised twice", "SPLIT ? 1.0f : total", "total", kernel="verify_attention"),
    Mutant(
        "keys in the constant space",
        "inline void stage(P from, Steps",
        "inline void stage(const constant T* from, Steps",
    ),
    Mutant("the next value's bits", "word >> (j * BITS)", "word >> (j * BITS + 1)"),
    Mutant("the scale of the first group", "chunk * each / GROUP;", "chunk / GROUP;"),
    Mutant("no padding of words", "if (key < count) {\n      word", "if (true) {\n      word"),
    Mutant("the values' scales", "key_scales + head", "value_scales + head"),
    Mutant("another head's biases", "value_biases + head *", "value_biases + 0 *"),
    Mutant("biases by other steps", "group * bias_steps.column", "group * steps.column * 2"),
    Mutant("a chunk too few", "i < KEYS * WIDTH / each;", "i < KEYS * WIDTH / each - 1;"),
    Mutant(
        "join: weights of another stretch",
        "norms[place * 2] - top",
        "norms[line * 2] - top",
        kernel="verify_attention_join",
    ),
    Mutant(
        "join: the last stretch is left out",
        "for (int b = 0; b < blocks; b++) {\n  const",
        "for (int b = 0; b < blocks - 1; b++) {\n  const",
        kernel="verify_attention_join",
    ),
    Mutant(
        "join: beyond the head",
        "mixed[i] += weight * partial[place * E + lane + 32 * i];\n    }",
        "}\n    mixed[i] += weight * partial[place * E + lane + 32 * i];",
        kernel="verify_attention_join",
    ),
)

SCALE = 0.125
TREE = (1, 3, 5, 11, 21)


def cases() -> list[Case]:
    """A tree over two stretches, and with the keys divided among simdgroups; more lines than go
    together; three stretches to join."""
    random = np.random.default_rng(3)

    def normal(*shape: int) -> mx.array:
        return mx.array(random.standard_normal(shape), mx.float32)

    length, heads, group, rows = 299, 2, 2, len(TREE)
    queries = normal(1, heads * group, rows, 64)
    keys, values = normal(1, heads, length, 64) * 2, normal(1, heads, length, 80)
    expected = reference(queries, keys, values, sees=TREE, scale=SCALE)

    def joined(outputs: list[mx.array]) -> bool:
        """Whether the stretches' parts make the whole, by another way than the kernel's."""
        out, norms = outputs
        top = mx.max(norms[..., :1], axis=0)
        weights = 2 ** (norms[..., :1] - top)
        whole = mx.sum(weights * out, axis=0) / mx.sum(weights * norms[..., 1:], axis=0)
        return bool(mx.allclose(whole, expected[0], atol=1e-5))

    first = Case(KERNEL, *attention_call(queries, keys, values, TREE, SCALE), joined)

    scores = queries.reshape(heads, group, rows, -1) @ keys[0, :, None].swapaxes(-1, -2) * SCALE
    scores = mx.where(mask(length, TREE), scores, -mx.inf) / np.log(2)
    parts, norms = [], []
    for at in (slice(0, 100), slice(100, 200), slice(200, length)):
        top = mx.max(scores[..., at], axis=-1, keepdims=True)
        weights = 2 ** (scores[..., at] - top)
        norm = mx.concatenate([top, mx.sum(weights, axis=-1, keepdims=True)], axis=-1)
        parts.append((weights @ values[0, :, None, at]).reshape(heads * group, rows, -1))
        norms.append(norm.reshape(heads * group, rows, 2))
    partial = mx.stack(parts)
    second = Case(
        JOIN,
        [partial, mx.stack(norms)],
        join_launch(partial, mx.float32),
        lambda outputs: bool(mx.allclose(outputs[0], expected, atol=1e-5)),
    )

    many, short, chain = normal(1, 9, 15, 64), normal(1, 1, 33, 64), causal(15)
    mixed = reference(many, short, short, sees=chain, scale=SCALE)
    third = Case(
        KERNEL,
        *attention_call(many, short, short, chain, SCALE),
        lambda outputs: bool(mx.allclose(outputs[0], mixed, atol=1e-5)),
    )
    with mock.patch.object(verify_attention, "ENOUGH_GROUPS", 1):
        divided = attention_call(queries, keys, values, TREE, SCALE)
    how = Packing(8, 32)
    cached = [tuple(mx.quantize(it, how.group_size, how.bits)) for it in (keys, keys[..., ::-1])]
    narrow = [tuple(it[:, :, :41] for it in part) for part in cached]
    small = reference(queries, *narrow, sees=TREE, scale=SCALE, packing=how)
    fourth = Case(
        KERNEL,
        *attention_call(queries, *narrow, TREE, SCALE, how),
        lambda outputs: bool(mx.allclose(outputs[0], small, atol=1e-5)),
    )
    return [first, second, third, Case(KERNEL, *divided, joined), fourth]
