"""The bits are the documented ones wherever they are computed, and they are good enough."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from exact import Array, excess
from hypothesis import given
from hypothesis import strategies as st

from macspec.noise import (
    ACCEPT,
    DRAFT,
    MAX_SEED,
    RESIDUAL,
    TARGET,
    Noise,
    bits,
    row_key,
    to_gumbel,
    to_uniform,
)

STREAMS = (TARGET, DRAFT, ACCEPT, RESIDUAL)
IDS = 2**16
USUAL = 4.5
"""Standard deviations that good noise stays within on the fixed seeds below."""


def documented_bits(seed: int, stream: int, position: int, draw: int, token: int) -> int:
    """The formula of macspec.noise, number by number."""

    def mix(x: int) -> int:
        x ^= x >> 16
        x = x * 0x7FEB352D % 2**32
        x ^= x >> 15
        x = x * 0x846CA68B % 2**32
        return x ^ x >> 16

    def key(c: int) -> int:
        h = 0
        for word in (seed % 2**32, seed // 2**32, stream, position, draw):
            h = mix(((h ^ word) + c) % 2**32)
        return h

    k0, k1 = key(0x9E3779B9), key(0x85EBCA6B)
    return mix(mix((token * 0x9E3779B9 + k0) % 2**32) ^ k1)


GOLDEN = {
    (0, TARGET, 0, 0, 0): 0xEAD8702D,
    (0, TARGET, 1, 0, 0): 0x68E3E317,
    (1, TARGET, 0, 0, 1): 0x1A088E1C,
    (42, DRAFT, 17, 3, 151_935): 0x97A43724,
    (42, ACCEPT, 17, 3, 0): 0xD1023F55,
    (2**32, RESIDUAL, 32_767, 12_345, 262_143): 0x2A5C0E26,
    (MAX_SEED, TARGET, 1_000_000, 0, 7): 0x7CF6979D,
}
"""(seed, stream, position, draw, id) and its bits: recorded once, never to change."""


def row_bits(seed: int, stream: int, position: int, draw: int = 0, width: int = IDS) -> Array:
    key = mx.array([row_key(seed, stream, position, draw)], mx.uint32)
    return np.array(bits(key, mx.arange(width, dtype=mx.uint32)))[0]


def test_golden_bits() -> None:
    for (seed, stream, position, draw, token), value in GOLDEN.items():
        assert documented_bits(seed, stream, position, draw, token) == value
        assert row_bits(seed, stream, position, draw, token + 1)[token] == value


@given(
    st.integers(0, MAX_SEED),
    st.sampled_from(STREAMS),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 2**18), min_size=1, max_size=5),
)
def test_bits_are_the_documented_ones(
    seed: int, stream: int, position: int, draw: int, tokens: list[int]
) -> None:
    key = mx.array([row_key(seed, stream, position, draw)], mx.uint32)
    expected = [documented_bits(seed, stream, position, draw, token) for token in tokens]
    assert bits(key, mx.array(tokens, mx.uint32)).tolist() == [expected]


def test_noise_does_not_depend_on_the_shape_it_is_computed_in() -> None:
    narrow = Noise(5, draw=2, position=40, rows=1, width=151_936)
    broad = Noise(5, draw=2, position=37, rows=5, width=152_064)
    for stream in STREAMS:
        shared = broad.gumbel(stream)[3, :151_936]
        assert mx.array_equal(narrow.gumbel(stream)[0], shared)
        assert mx.array_equal(narrow.gumbel_row(stream), shared)
        assert mx.array_equal(narrow.uniform(stream), broad.uniform(stream)[3:4])
        first = to_uniform(mx.array(row_bits(5, stream, 40, 0 if stream == TARGET else 2, 1)))
        assert mx.array_equal(narrow.uniform(stream), first)


@pytest.mark.parametrize("stream", [TARGET, DRAFT])
def test_rows_of_many_positions_equal_one_row_of_each(stream: int) -> None:
    together = Noise(9, draw=1, position=101, rows=33, width=50).gumbel(stream)
    for row in range(33):
        assert mx.array_equal(together[row], Noise(9, 1, 101 + row, 1, 50).gumbel(stream)[0])


def test_only_the_targets_stream_forgets_the_pass() -> None:
    one, other = (Noise(3, draw, position=8, rows=2, width=64) for draw in (0, 7))
    for stream in STREAMS:
        same = mx.array_equal(one.gumbel(stream), other.gumbel(stream))
        assert same == (stream == TARGET)


def test_every_bit_of_the_seed_counts() -> None:
    rows = {row_key(1 << bit, TARGET, 0) for bit in range(64)} | {row_key(0, TARGET, 0)}
    assert len(rows) == 65


def test_no_two_rows_of_long_replies_share_their_noise() -> None:
    """A key of 32 bits would repeat about twice here."""
    keys = {
        row_key(seed, stream, position, position // 2)
        for seed in range(8)
        for stream in STREAMS
        for position in range(4096)
    }
    assert len(keys) == 8 * len(STREAMS) * 4096


def test_extreme_bits_give_numbers_inside_their_range() -> None:
    raw = [0, 1, 2, 127, 128, 2**31 - 1, 2**31, 2**32 - 257, 2**32 - 256, 2**32 - 2, 2**32 - 1]
    uniform = np.array(to_uniform(mx.array(raw, mx.uint32)))
    assert uniform.dtype == np.float32
    assert uniform.min() > 0
    assert uniform.max() < 1
    gumbel = np.array(to_gumbel(mx.array(raw, mx.uint32)))
    assert np.isfinite(gumbel).all()
    assert 22.8 < gumbel[0] < 22.9
    assert -2.9 < gumbel[-1] < -2.8


def test_floats_follow_their_formulas_closely() -> None:
    raw = np.concatenate([row_bits(1, TARGET, 1), np.arange(1000, dtype=np.uint32)])
    u = np.minimum((raw + 0.5) * 2.0**-32, 1 - 2.0**-24)
    assert np.allclose(np.array(to_uniform(mx.array(raw))), u, rtol=2e-7, atol=0)
    gumbel = np.array(to_gumbel(mx.array(raw)))
    # Above 0 the numbers decide draws and are as fine as float32; far below they cannot win.
    error = np.abs(gumbel + np.log(-np.log1p(-u)))
    assert error[gumbel > -1].max() < 2e-6
    assert error.max() < 1e-4


def test_numpy_makes_the_same_noise() -> None:
    keys = [row_key(3, TARGET, row) for row in range(3)]
    ours, theirs = (
        bits(xp.array(keys, xp.uint32), xp.arange(500, dtype=xp.uint32), xp) for xp in (np, mx)
    )
    assert np.array_equal(ours, np.array(theirs))
    assert np.array_equal(to_uniform(ours, np), np.array(to_uniform(theirs)))
    assert np.allclose(to_gumbel(ours, np), np.array(to_gumbel(theirs)), rtol=1e-6, atol=1e-6)
    assert to_gumbel(ours, np).dtype == np.float32


def uniforms(raw: Any) -> Array:
    return np.array(to_uniform(mx.array(raw))).astype(np.float64)


def along_positions(draws: bool) -> Array:
    keys = [row_key(7, DRAFT, 9, i) if draws else row_key(7, TARGET, i) for i in range(IDS // 4)]
    return np.array(bits(mx.array(keys, mx.uint32), mx.arange(2, dtype=mx.uint32)))[:, 0]


def along_seeds(step: int) -> Array:
    keys = [row_key(i * step, TARGET, 3) for i in range(IDS // 4)]
    return np.array(bits(mx.array(keys, mx.uint32), mx.arange(2, dtype=mx.uint32)))[:, 1]


SEQUENCES = {
    "ids": row_bits(0, TARGET, 0),
    "ids of another row": row_bits(123, DRAFT, 77, 5),
    "positions": along_positions(draws=False),
    "passes": along_positions(draws=True),
    "seeds": along_seeds(1),
    "seeds that differ in their high half": along_seeds(2**32),
}
sequences = pytest.mark.parametrize("name", SEQUENCES)


@sequences
def test_bits_are_even_high_and_low(name: str) -> None:
    raw = SEQUENCES[name]
    for part in (raw >> 24, raw & 255, (raw >> 12) & 255):
        assert excess(np.bincount(part, minlength=256), np.full(256, len(raw) / 256)) < USUAL


@sequences
def test_uniforms_pass_kolmogorov_and_smirnov(name: str) -> None:
    u = np.sort(uniforms(SEQUENCES[name]))
    n = len(u)
    distance = max((np.arange(1, n + 1) / n - u).max(), (u - np.arange(n) / n).max())
    assert distance * math.sqrt(n) < 1.95  # one in a thousand


@sequences
@pytest.mark.parametrize("lag", [1, 2, 64])
def test_neighbours_are_independent(name: str, lag: int) -> None:
    assert_independent(SEQUENCES[name][:-lag], SEQUENCES[name][lag:])


def test_rows_are_independent_of_each_other() -> None:
    rows = [
        row_bits(seed, stream, position, draw)
        for seed, stream, position, draw in (
            (1, TARGET, 10, 0), (1, TARGET, 11, 0), (1, DRAFT, 10, 0), (1, DRAFT, 10, 1),
            (1, ACCEPT, 10, 1), (1, RESIDUAL, 10, 1), (2, TARGET, 10, 0), (3, TARGET, 10, 0),
            (1 + 2**32, TARGET, 10, 0), (1 + 2**63, TARGET, 10, 0),
        )
    ]  # fmt: skip
    for one, other in combinations(rows, 2):
        assert_independent(one, other)


def assert_independent(one: Array, other: Array) -> None:
    """By correlation, and by chi-square of the pairs on a grid."""
    a, b = uniforms(one), uniforms(other)
    assert abs(np.corrcoef(a, b)[0, 1]) * math.sqrt(len(a)) < USUAL
    grid, _, _ = np.histogram2d(a, b, bins=16, range=[[0, 1], [0, 1]])
    assert excess(grid, np.full((16, 16), len(a) / 256)) < USUAL


def test_flipping_any_bit_of_the_key_flips_half_of_the_bits() -> None:
    here = row_bits(6, DRAFT, 21, 9)
    for bit in range(20):
        for there in (
            row_bits(6 ^ 1 << 3 * bit, DRAFT, 21, 9),
            row_bits(6, DRAFT, 21 ^ 1 << bit, 9),
            row_bits(6, DRAFT, 21, 9 ^ 1 << bit),
        ):
            flipped = np.unpackbits((here ^ there).view(np.uint8))
            assert abs(flipped.mean() - 0.5) * 2 * math.sqrt(len(flipped)) < USUAL


@pytest.mark.parametrize("along", ["positions", "passes", "seeds"])
def test_the_largest_score_is_a_draw_from_the_distribution(along: str) -> None:
    p = np.array([0.4, 0.25, 0.15, 0.1, 0.06, 0.03, 0.01])
    keys = [
        {
            "positions": row_key(11, TARGET, i),
            "passes": row_key(11, DRAFT, 5, i),
            "seeds": row_key(i, TARGET, 5),
        }[along]
        for i in range(20_000)
    ]
    gumbel = to_gumbel(bits(mx.array(keys, mx.uint32), mx.arange(len(p), dtype=mx.uint32)))
    drawn = np.array(mx.argmax(mx.log(mx.array(p, mx.float32)) + gumbel, axis=-1))
    assert excess(np.bincount(drawn, minlength=len(p)), len(drawn) * p) < USUAL
