"""The two windowed caches alone: keys say their position, so what is seen can be read off."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import RotatingKVCache

import macspec.windowed
from macspec.windowed import SLACK, ChunkedWindowKVCache, WindowedKVCache

WINDOW = 8


def rows(count: int, first: int = 0) -> mx.array:
    """Keys [1, 1, count, 1] that say their position."""
    return mx.arange(first, first + count, dtype=mx.float32).reshape(1, 1, -1, 1)


def push(cache: Any, count: int = 1) -> list[int]:
    """Append the next positions; return those shown."""
    new = rows(count, cache.offset)
    keys, values = cache.update_and_fetch(new, -new)
    shown = keys.flatten().tolist()
    assert values.flatten().tolist() == [-position for position in shown]
    return [int(position) for position in shown]


def seen(cache: Any, count: int, **asked: Any) -> list[list[int]]:
    """For each of the next ``count`` rows, the positions it attends to."""
    mask = cache.make_mask(count, **asked)
    shown = push(cache, count)
    if mask is None:
        assert count == 1
        return [sorted(shown)]
    if isinstance(mask, str):
        assert mask == "causal"
        mask = mx.tril(mx.ones((count, len(shown)), mx.bool_), k=len(shown) - count)
    allowed = mask.reshape(count, -1).tolist()
    assert len(allowed[0]) == len(shown)
    return [sorted(p for p, may in zip(shown, row, strict=True) if may) for row in allowed]


def test_why_not_mlx_lms_ring() -> None:
    """After the wrap, its trim moves two counters: the old positions are gone all the same."""
    ring = RotatingKVCache(WINDOW)
    for _ in range(12):
        push(ring)
    ring.trim(2)
    after = sorted(push(ring))
    assert after != list(range(3, 11))
    assert 11 in after, "a position that was taken back is still attended to"

    window = WindowedKVCache(WINDOW)
    for _ in range(12):
        push(window)
    window.trim(2)
    assert push(window) == list(range(3, 11))


@pytest.mark.parametrize("asked", [None, WINDOW, 5, 1, WINDOW + 1])
@pytest.mark.parametrize("return_array", [False, True])
def test_each_row_sees_its_window(asked: int | None, return_array: bool) -> None:
    cache = WindowedKVCache(WINDOW)
    width = min(asked or WINDOW, WINDOW)
    for count in (3, 1, 1, 2, 1, 4, 1, 1, 20, 1, 5, 1):
        first = cache.offset
        expected = [list(range(max(0, p - width + 1), p + 1)) for p in range(first, first + count)]
        assert seen(cache, count, window_size=asked, return_array=return_array) == expected


@pytest.mark.parametrize("asked", [None, WINDOW, 5])
def test_rows_see_what_they_see_in_mlx_lms_ring(asked: int | None) -> None:
    cache, ring = WindowedKVCache(WINDOW), RotatingKVCache(WINDOW)
    for count in (3, 1, 1, 2, 1, 4, 1, 1, 20, 1, 5, 1):
        assert seen(cache, count, window_size=asked) == seen(ring, count, window_size=asked)


def test_the_mask_is_an_array_only_where_it_must_be() -> None:
    cache = WindowedKVCache(WINDOW)
    assert cache.make_mask(1, window_size=5) is None
    assert cache.make_mask(1, window_size=WINDOW) is None
    assert cache.make_mask(WINDOW, window_size=WINDOW) == "causal"
    assert isinstance(cache.make_mask(WINDOW + 1, window_size=WINDOW), mx.array)
    push(cache, 30)
    assert cache.make_mask(1, window_size=WINDOW) is None


def test_layers_that_share_a_cache_read_what_the_pass_saw() -> None:
    cache = WindowedKVCache(WINDOW)
    for count in (5, 1, 12, 1, 1, 3):
        assert push(cache, count) == cache.keys_and_values()[0].flatten().tolist()


passes = st.lists(
    st.tuples(st.integers(1, 6) | st.integers(1, 3 * WINDOW), st.integers(0, 6), st.booleans()),
    min_size=10,
    max_size=60,
)


@pytest.mark.parametrize("step", [1, 4, 256])
def test_any_passes_and_rollbacks(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WindowedKVCache, "step", step)
    monkeypatch.setattr(ChunkedWindowKVCache, "step", step)

    @settings(max_examples=60, deadline=None, database=None, derandomize=True)
    @given(passes)
    def check(script: list[tuple[int, int, bool]]) -> None:
        window, chunk = WindowedKVCache(WINDOW, slack=6), ChunkedWindowKVCache(WINDOW, slack=6)
        for count, back, single in script:
            for part in [1] * count if single else [count]:
                first = window.offset
                assert push(window, part) == list(range(max(0, first - WINDOW + 1), first + part))
                chunk.maybe_trim_front()
                begin = first - first % WINDOW
                assert push(chunk, part)[-(first + part - begin) :] == list(
                    range(begin, first + part)
                )
            length = window.offset - min(back, count)
            assert window.holds(length)
            assert chunk.holds(length)
            window.trim(window.offset - length)
            chunk.trim(chunk.offset - length)
            assert window.offset == chunk.offset == length

    check()


@pytest.mark.parametrize("cache", [WindowedKVCache(WINDOW), ChunkedWindowKVCache(WINDOW)])
def test_a_position_is_held_or_refused(cache: Any) -> None:
    for _ in range(210):
        if isinstance(cache, ChunkedWindowKVCache):
            cache.maybe_trim_front()
        push(cache, 3)
    held = [length for length in range(640) if cache.holds(length)]
    assert held == list(range(held[0], 631))
    assert held[0] <= 630 - SLACK
    cache.trim(630 - held[0])
    shown = push(cache)
    # The oldest length held is the first whose row finds its whole window, or chunk.
    if isinstance(cache, ChunkedWindowKVCache):
        assert shown[0] % WINDOW
        assert held[0] == -(-shown[0] // WINDOW) * WINDOW
    else:
        assert shown == list(range(held[0] - WINDOW + 1, held[0] + 1))
        assert cache.keys[0, 0, 0].item() == shown[0]


@pytest.mark.parametrize("kind", [WindowedKVCache, ChunkedWindowKVCache])
@pytest.mark.parametrize("count", [1, 5])
def test_what_is_stored_stays_bounded(kind: Any, count: int) -> None:
    cache = kind(WINDOW)
    largest = 0
    push(cache, 2000)
    for _ in range(5000 // count):
        if kind is ChunkedWindowKVCache:
            cache.maybe_trim_front()
        push(cache, count)
        largest = max(largest, cache.keys.shape[2])
        assert cache.nbytes == 2 * 4 * cache.keys.shape[2]
    assert largest <= WINDOW + SLACK + 2 * cache.step


def test_single_rows_are_written_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    moves = []
    concatenate = mx.concatenate

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(mx, name)

        def concatenate(self, *arguments: Any, **options: Any) -> mx.array:
            moves.append(1)
            return concatenate(*arguments, **options)

    monkeypatch.setattr(macspec.windowed, "mx", Counting())
    cache = WindowedKVCache(WINDOW)
    for _ in range(10 * cache.step):
        push(cache)
    assert 0 < len(moves) <= 2 * 11


def test_the_state_says_all() -> None:
    cache = WindowedKVCache(WINDOW)
    push(cache, 30)
    cache.trim(3)
    again = WindowedKVCache.from_state(cache.state)
    assert push(again, 2) == push(cache, 2)
