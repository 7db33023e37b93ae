"""verify_attention: values, counters and layers over head sizes, types, masks and lengths."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from harness import run

from macspec.metal import verify_attention
from macspec.metal.verify_attention import (
    JOIN,
    KERNEL,
    MOST_BLOCKS,
    PLAIN,
    STRETCH,
    WIDTHS,
    Attention,
    Packing,
    attention_call,
    causal,
    join_launch,
    queries_together,
    reference,
)

CLOSE = {mx.float32: 2e-6, mx.float16: 1e-3, mx.bfloat16: 8e-3}
"""Largest error, in units of the largest value: a few roundings of the type."""


@dataclass(frozen=True)
class Pass:
    """Queries [1, heads * group, rows, width] over keys and values [1, heads, length, width]."""

    queries: mx.array
    keys: Any
    values: Any
    sees: tuple[int, ...]
    packing: Packing = PLAIN

    @property
    def scale(self) -> float:
        return self.queries.shape[-1] ** -0.5

    @property
    def expected(self) -> mx.array:
        arrays = self.queries, self.keys, self.values
        return reference(*arrays, sees=self.sees, scale=self.scale, packing=self.packing)


DEEP = (*(1 | 1 << row for row in range(32)), 1 << 32 | 1 << 31 | 1 << 17)
"""A tree of 33 rows; the last sees far ones only."""


def normal(shape, dtype, seed=0):
    random = np.random.default_rng([*shape, seed])
    return mx.array(random.standard_normal(shape), mx.float32).astype(dtype)


def passing(
    rows, length, *, heads=1, group=1, width=64, value_width=None, dtype=mx.float32, sees=None
) -> Pass:
    return Pass(
        normal((1, heads * group, rows, width), dtype, 1),
        normal((1, heads, length, width), dtype, 2),
        normal((1, heads, length, value_width or width), dtype, 3),
        sees or causal(rows),
    )


def close(out, expected, slack=1.0):
    """The error, in units of the largest value, is a few roundings of the type."""
    assert out.dtype == expected.dtype
    assert out.shape == expected.shape
    out, right = out.astype(mx.float32), expected.astype(mx.float32)
    largest = max(mx.max(mx.abs(right)).item(), 1)
    error = mx.max(mx.abs(out - right)).item()
    assert error <= slack * CLOSE[expected.dtype] * largest, error


def called(case: Pass):
    arrays = case.queries, case.keys, case.values
    return attention_call(*arrays, case.sees, case.scale, case.packing)


def attend(case: Pass, **how):
    """The output of one launch or two, and the report of the first."""
    call = called(case)
    first = run(KERNEL, *call, **how)
    report = first.report if how.get("inspected", True) else None
    if first[0].shape[0] == 1:
        return first[0], report
    joined = run(JOIN, [*first], join_launch(first[0], case.queries.dtype), **how)
    return joined[0], report


def check(case: Pass, *, slack=1.0, **how):
    out, report = attend(case, **how)
    close(out, case.expected, slack)
    return report


def one_type_a_width():
    """Every width with every type; by default one type for each."""
    for (a, width), (b, dtype) in itertools.product(enumerate(WIDTHS), enumerate(CLOSE)):
        marks = pytest.mark.slow if (a + b) % 3 else ()
        yield pytest.param(width, dtype, marks=marks, id=f"{width}-{dtype}")


@pytest.mark.parametrize(("width", "dtype"), one_type_a_width())
def test_every_head_size_and_type(width, dtype):
    case = passing(3, 41, heads=2, group=2, width=width, dtype=dtype)
    assert check(case).threadgroup_bytes == called(case)[1].threadgroup_bytes <= 20 * 1024


@pytest.mark.parametrize("rows", [2, 5, 8, 9, 17, 33])
def test_rows(rows):
    check(passing(rows, 53, heads=2, group=3, dtype=mx.float16))


@pytest.mark.parametrize("length", [2, 7, 8, 31, 32, 33, 65])
def test_lengths_around_the_edges_of_a_tile(length):
    check(passing(2, length, dtype=mx.float16))


@pytest.mark.parametrize(("width", "value_width"), [(192, 128), (64, 96)])
def test_values_of_another_width(width, value_width):
    check(passing(4, 37, group=2, width=width, value_width=value_width))


@pytest.mark.parametrize(
    "sees", [(1, 3, 5, 11, 21), (1, 2, 4, 8, 16), (1, 3, 7, 11, 19, 35, 67, 131), DEEP]
)
def test_trees(sees):
    check(passing(len(sees), 45, group=2, sees=sees))


@pytest.mark.parametrize(
    ("length", "dtype"), [(STRETCH + 1, mx.float16), *((3 * STRETCH - 5, it) for it in CLOSE)]
)
def test_a_long_context_in_two_launches(length, dtype):
    check(passing(5, length, heads=2, group=2, dtype=dtype, sees=(1, 3, 5, 11, 21)))


@pytest.mark.parametrize(
    ("rows", "group", "width", "dtype", "share"),
    [
        (3, 2, 64, mx.float16, 4),
        (5, 4, 80, mx.float32, 2),
        pytest.param(2, 1, 128, mx.bfloat16, 4, marks=pytest.mark.slow),
        pytest.param(16, 2, 192, mx.float16, 2, marks=pytest.mark.slow),
        pytest.param(4, 2, 256, mx.float32, 1, marks=pytest.mark.slow),
    ],
)
def test_few_queries_divide_the_keys_of_a_tile(
    monkeypatch: pytest.MonkeyPatch, rows, group, width, dtype, share
):
    monkeypatch.setattr(verify_attention, "ENOUGH_GROUPS", 1)
    # The last tile has keys for some simdgroups only.
    case = passing(rows, 297, group=group, width=width, dtype=dtype)
    _, launch = called(case)
    assert dict(launch.constants)["SHARE"] == share
    traffic = check(case).traffic
    assert {(traffic[name].least, traffic[name].most) for name in ("keys", "values")} == {(1, 1)}


def test_keys_are_divided_once_there_are_threadgroups_enough():
    shares = {}
    for length in (1024, 4096, 8192):
        case = passing(4, length, heads=8, group=4, dtype=mx.float16)
        _, launch = called(case)
        shares[length] = dict(launch.constants)["SHARE"], launch.threadgroup[0], launch.shapes[1][0]
    assert shares == {1024: (1, 64, 4), 4096: (1, 64, 16), 8192: (4, 256, 32)}


def test_stretches_without_a_key_weigh_nothing():
    # 513 tiles of 32 in 64 stretches: 57 of 9 tiles are enough.
    case = passing(2, MOST_BLOCKS * STRETCH + 1, dtype=mx.float16)
    _, launch = called(case)
    assert launch.grid[1] == MOST_BLOCKS
    check(case, inspected=False)


ONCE = [
    (16, 8, 128, mx.float16),
    (2, 1, 64, mx.float32),
    (7, 5, 80, mx.bfloat16),
    (8, 8, 256, mx.float16),
]


@pytest.mark.parametrize(("rows", "group", "width", "dtype"), ONCE)
def test_each_key_and_value_is_read_once(rows, group, width, dtype):
    assert rows * group <= queries_together(width)
    traffic = check(passing(rows, 44, heads=2, group=group, width=width, dtype=dtype)).traffic
    assert {(traffic[name].least, traffic[name].most) for name in ("keys", "values")} == {(1, 1)}


def test_a_long_context_is_read_once_too():
    traffic = check(passing(4, STRETCH * 2, group=4, dtype=mx.float16)).traffic
    assert {(traffic[name].least, traffic[name].most) for name in ("keys", "values")} == {(1, 1)}


def test_more_queries_than_fit_together_are_split():
    traffic = check(passing(16, 40, group=9, dtype=mx.float16)).traffic
    assert {(traffic[name].least, traffic[name].most) for name in ("keys", "values")} == {(2, 2)}


@pytest.mark.parametrize("width", [96, 192])
def test_slices_are_read_where_they_lie(width):
    """Keys and values in a cache with room, queries as a projection leaves them."""
    rows, length, dtype = 4, 37, mx.float16
    keys, values = (normal((1, 2, 48, width), dtype, seed) for seed in (2, 3))
    for cache in (keys, values):
        cache[:, :, length:] = mx.nan
    queries = normal((1, rows, 6, width), dtype).transpose(0, 2, 1, 3)
    traffic = check(Pass(queries, keys[:, :, :length], values[:, :, :length], causal(rows))).traffic
    for name in ("keys", "values"):
        assert traffic[name].size > 2 * length * width * 2, "the harness copied it"
        assert traffic[name].most == 1
        assert traffic[name].read == 2 * length * width * 2


@pytest.mark.parametrize("width", [64, 192])
def test_columns_need_not_be_neighbours(width):
    shapes = ((1, 4, width, 3), (1, 2, width, 21), (1, 2, width, 21))
    turned = (normal(shape, mx.float32, i).swapaxes(-1, -2) for i, shape in enumerate(shapes))
    traffic = check(Pass(*turned, causal(3))).traffic
    assert {(traffic[name].least, traffic[name].most) for name in ("keys", "values")} == {(1, 1)}


def packed(case: Pass, packing: Packing) -> Pass:
    """Keys and values as slices of a quantized cache with room."""

    def held(array):
        room = mx.pad(array, [(0, 0), (0, 0), (0, 11), (0, 0)], constant_values=3)
        found = mx.quantize(room, packing.group_size, packing.bits)
        return tuple(it[:, :, : array.shape[2]] for it in found)

    return replace(case, keys=held(case.keys), values=held(case.values), packing=packing)


@pytest.mark.parametrize(
    ("packing", "width", "dtype", "length"),
    [
        (Packing(8, 64), 128, mx.bfloat16, 70),
        (Packing(4, 32), 64, mx.float16, STRETCH + 3),
        pytest.param(Packing(2, 32), 96, mx.float32, 70, marks=pytest.mark.slow),
        pytest.param(Packing(4, 64), 256, mx.float16, 70, marks=pytest.mark.slow),
        pytest.param(Packing(8, 64), 192, mx.float32, 2 * STRETCH, marks=pytest.mark.slow),
    ],
)
def test_a_quantized_cache_is_read_once(packing, width, dtype, length):
    case = passing(5, length, heads=2, group=2, width=width, dtype=dtype, sees=(1, 3, 5, 11, 21))
    # Keys and values are rounded to the type once more than the reference's.
    traffic = check(packed(case, packing), slack=2).traffic
    for name in ("keys", "values"):
        assert traffic[name].most == 1
        assert traffic[name].read == 2 * length * width * packing.bits // 8


def test_unaligned_inputs():
    check(passing(3, 40, group=2, dtype=mx.bfloat16), skewed=True)


def test_large_scores_do_not_overflow():
    case = passing(3, 70, group=2)
    # Scores of about 1,000 are rounded to 1e-4, which is the relative error of their weights.
    check(replace(case, queries=case.queries * 300), slack=100)


def test_equal_scores_are_a_mean():
    case = passing(2, 33)
    out, _ = attend(replace(case, queries=mx.zeros_like(case.queries)))
    mean = mx.mean(case.values[0, 0], axis=0)
    assert mx.allclose(out[0, 0, 1], mean, atol=1e-6).item()


def test_nan_in_a_key_reaches_the_rows_that_see_it():
    case = passing(3, 40)
    case.keys[0, 0, 38] = mx.nan
    out, _ = attend(case)
    assert mx.isnan(out).any(axis=-1)[0, 0].tolist() == [False, True, True]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_random_shapes(seed):
    random = np.random.default_rng(seed)
    rows = int(random.integers(2, 34))
    sees: list[int] = []
    for row in range(rows):
        parent = int(random.integers(-1, row)) if row else -1
        sees.append((sees[parent] if parent >= 0 else 0) | 1 << row)
    case = passing(
        rows,
        int(rows + random.integers(0, 700)),
        heads=int(random.integers(1, 4)),
        group=int(random.integers(1, 9)),
        width=int(random.choice(WIDTHS)),
        dtype=list(CLOSE)[seed % 3],
        sees=tuple(sees),
    )
    check(case)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ((1, 4, 2, 64, 64, mx.float16), "1 rows"),
        ((34, 4, 2, 64, 64, mx.float16), "34 rows"),
        ((4, 4, 2, 72, 64, mx.float16), "heads of 72 and 64"),
        ((4, 5, 2, 64, 64, mx.float16), "evenly"),
        ((4, 4, 2, 64, 64, mx.int32), "int32"),
    ],
)
def test_what_the_kernel_does_not_take(case, words):
    rows, *shape = case
    assert words in Attention(*shape).unsupported(rows)
    assert Attention(4, 2, 64, 64, mx.float16).unsupported(4) is None
