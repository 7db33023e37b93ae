"""Rollback over every kind of cache: after it, nothing tells that the rows had ever been there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache as memoized
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ConcatenateKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    make_prompt_cache,
)
from tinymodels import VOCABULARY, WINDOW, tiny

from macspec.cache import ModelCache
from macspec.windowed import ChunkedWindowKVCache, WindowedKVCache

SLACK = 5
TOKENS = [random.Random(3).randrange(VOCABULARY) for _ in range(120)]
"""What is committed; longer than fourteen windows."""

WINDOWED = ("llama-sliding", "gemma3_text", "gemma4_text", "gpt_oss", "llama4")
ATTENTION = ("llama", *WINDOWED)
RECURRENT = ("mamba", "qwen3_next")

Round = tuple[int, int, bool]
"""Rows fed, rows that stay, and whether each row is a pass of its own (as a draft model steps)."""


@pytest.fixture(autouse=True, scope="module")
def small_steps() -> Iterator[None]:
    """Buffers that grow and move every few tokens, so that short runs see it often."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in (WindowedKVCache, ChunkedWindowKVCache):
            patch.setattr(kind, "step", 4)
        for kind in (KVCache, QuantizedKVCache):
            patch.setattr(kind, "step", 16)
        yield


def wrong(position: int) -> int:
    return (TOKENS[position % len(TOKENS)] + 1) % VOCABULARY


def feed(model: Any, cache: ModelCache, tokens: list[int], *, single: bool = False) -> mx.array:
    """Logits [rows, V] of the tokens, in one pass or in one each."""
    parts = [[token] for token in tokens] if single else [tokens]
    logits = []
    for part in parts:
        cache.mark()
        logits.append(model(mx.array([part]), cache=cache.layers)[0])
        cache.advance(len(part))
    return mx.concatenate(logits)


def newest(layer: Any) -> mx.array:
    if type(layer) is RotatingKVCache:
        end = layer._idx
    else:
        end = layer.offset - getattr(layer, "start_position", 0)
    return mx.concatenate([layer.keys[0, :, end - 1], layer.values[0, :, end - 1]], axis=-1)


@memoized
def plain(name: str, kv_bits: int | None = None) -> tuple[mx.array, list[mx.array]]:
    """Logits [tokens, V], and per layer the keys and values [tokens, heads, widths] of `TOKENS`.

    From mlx-lm's own caches, one token a pass, nothing ever drafted.
    """
    model = tiny(name)
    layers = make_prompt_cache(model)
    if kv_bits:
        layers = [QuantizedKVCache(group_size=64, bits=kv_bits) for _ in layers]
    logits: list[mx.array] = []
    rows: list[list[mx.array]] = [[] for _ in layers]
    for token in TOKENS:
        logits.append(model(mx.array([[token]]), cache=layers)[0, 0])
        for kept, layer in zip(rows, layers, strict=True):
            if type(layer) not in (ArraysCache, QuantizedKVCache):
                kept.append(newest(layer))
        mx.eval(logits[-1], [kept[-1:] for kept in rows])
    return mx.stack(logits), [mx.stack(kept) if kept else mx.array(0) for kept in rows]


def live(layer: Any) -> tuple[int, mx.array]:
    """The first position that the next row attends to, and keys and values from there on."""
    if type(layer) is WindowedKVCache:
        first, end = max(0, layer.offset - layer.max_size + 1), layer._idx
    elif type(layer) is ChunkedWindowKVCache:
        first = layer.offset - layer.offset % layer.chunk_size
        end = layer.offset - layer.start_position
    else:
        first, end = 0, layer.offset
    start = end - (layer.offset - first)
    assert start >= 0
    kept = mx.concatenate([layer.keys[0, :, start:end], layer.values[0, :, start:end]], axis=-1)
    return first, kept.swapaxes(0, 1)


def assert_as_plain(name: str, cache: ModelCache, length: int) -> None:
    assert cache.length == length
    assert not cache.torn
    for layer, expected in zip(cache.layers, plain(name)[1], strict=True):
        if type(layer) in (ArraysCache, QuantizedKVCache):
            continue
        assert layer.offset == length
        if length == 0:
            continue
        first, kept = live(layer)
        assert mx.allclose(kept, expected[first:length], rtol=1e-4, atol=1e-5)


def assert_logits(got: mx.array, expected: mx.array, *, tolerance: float = 1e-4) -> None:
    if not got.size:
        return
    assert mx.allclose(got, expected, rtol=tolerance, atol=tolerance)
    assert mx.array_equal(mx.argmax(got, axis=-1), mx.argmax(expected, axis=-1))


def play(name: str, rounds: list[Round], *, kv_bits: int | None = None) -> int:
    """Run the rounds, compare after each with plain decoding; return the length reached."""
    model, expected = tiny(name), plain(name, kv_bits)[0]
    cache = ModelCache(model, slack=SLACK, kv_bits=kv_bits)
    length = 0
    for rows, stay, single in rounds:
        stay = min(stay, len(TOKENS) - length)
        rows = min(rows, stay + SLACK)
        fed = TOKENS[length : length + stay] + [
            wrong(i) for i in range(length + stay, length + rows)
        ]
        logits = feed(model, cache, fed, single=single)
        assert_logits(logits[:stay], expected[length : length + stay])
        length += stay
        cache.rollback(length)
        assert_as_plain(name, cache, length)
    return length


def draw(seed: int) -> list[Round]:
    """Rounds that reach the end of `TOKENS`, a long prefill pass among them."""
    dice = random.Random(seed)
    rounds: list[Round] = [(3, 3, False)]
    while sum(stay for _, stay, _ in rounds) < len(TOKENS):
        stay = dice.choice([0, 1, 1, 2, 3, 6])
        rounds.append(
            (stay + dice.randint(1 if stay == 0 else 0, SLACK), stay, dice.random() < 0.4)
        )
    rounds.insert(len(rounds) // 2, (2 * WINDOW + 3, 2 * WINDOW + 3, False))
    return rounds


@pytest.mark.parametrize("name", ATTENTION)
def test_rounds_leave_what_plain_decoding_leaves(name: str) -> None:
    assert play(name, draw(2)) == len(TOKENS)


def test_quantized_rounds_leave_what_plain_decoding_leaves() -> None:
    assert play("llama-wide", draw(1), kv_bits=8) == len(TOKENS)


rounds_of_any_kind = st.lists(
    st.one_of(
        st.tuples(st.integers(1, SLACK + 6), st.integers(0, 6), st.booleans()),
        st.integers(1, 3 * WINDOW).map(lambda rows: (rows, rows, False)),
    ).map(lambda drawn: (max(drawn[0], drawn[1], 1), drawn[1], drawn[2])),
    min_size=5,
    max_size=25,
)


@pytest.mark.parametrize("name", ATTENTION)
def test_any_rounds(name: str) -> None:
    @settings(max_examples=8, deadline=None, database=None, derandomize=True)
    @given(rounds_of_any_kind)
    def check(rounds: list[Round]) -> None:
        play(name, rounds)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTENTION)
def test_any_rounds_many(name: str) -> None:
    @settings(max_examples=80, deadline=None, database=None)
    @given(rounds_of_any_kind)
    def check(rounds: list[Round]) -> None:
        play(name, rounds)

    check()


@pytest.mark.parametrize("name", ATTENTION)
def test_rollback_inside_a_prefill_longer_than_the_window(name: str) -> None:
    model = tiny(name)
    cache = ModelCache(model, slack=SLACK)
    feed(model, cache, TOKENS[: 5 * WINDOW + 3])
    length = 5 * WINDOW + 3 - SLACK
    cache.rollback(length)
    assert_as_plain(name, cache, length)
    logits = feed(model, cache, TOKENS[length : length + 4], single=True)
    assert_logits(logits, plain(name)[0][length : length + 4])


@pytest.mark.parametrize("name", WINDOWED)
def test_what_the_window_lost_is_refused_and_read_again(name: str) -> None:
    model = tiny(name)
    cache = ModelCache(model, slack=SLACK)
    for token in TOKENS[:60]:
        feed(model, cache, [token])
    assert cache.can_rollback(60 - SLACK)
    assert not cache.can_rollback(20)
    with pytest.raises(ValueError, match="60 positions cannot go back to 20"):
        cache.rollback(20)
    assert_as_plain(name, cache, 60)
    cache.reset()
    feed(model, cache, TOKENS[:20])
    assert_as_plain(name, cache, 20)


def test_full_attention_goes_back_to_any_length_but_not_forward() -> None:
    model = tiny("llama")
    cache = ModelCache(model)
    feed(model, cache, TOKENS[:40])
    assert [n for n in range(-1, 45) if cache.can_rollback(n)] == list(range(41))
    cache.rollback(7)
    assert not cache.can_rollback(8)
    assert_logits(feed(model, cache, TOKENS[7:9]), plain("llama")[0][7:9])


@pytest.mark.parametrize("name", [*ATTENTION, "qwen3_next"])
def test_a_pass_that_fails_half_way_is_rolled_back(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny(name)
    cache = ModelCache(model, slack=SLACK)
    feed(model, cache, TOKENS[:30])
    # The last layer, so that every other layer has moved on.
    kind = type(cache.layers[-1])
    update, calls = kind.update_and_fetch, [sum(type(c) is kind for c in cache.layers)]

    def failing(self: Any, keys: mx.array, values: mx.array) -> Any:
        calls[0] -= 1
        if calls[0] == 0:
            raise KeyboardInterrupt
        return update(self, keys, values)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "update_and_fetch", failing)
        with pytest.raises(KeyboardInterrupt):
            feed(model, cache, [wrong(30), wrong(31)])
    assert cache.torn
    cache.rollback(30)
    assert_as_plain(name, cache, 30)
    assert_logits(feed(model, cache, TOKENS[30:33]), plain(name)[0][30:33])


def test_a_cache_broken_between_keys_and_values_is_only_good_for_a_reset() -> None:
    model = tiny("llama")
    cache = ModelCache(model)
    feed(model, cache, TOKENS[:16])
    cache.mark()
    layer = cache.layers[1]
    layer.keys = mx.concatenate([layer.keys, mx.zeros_like(layer.keys)], axis=2)
    assert cache.torn
    assert not cache.can_rollback(16)
    assert cache.can_rollback(0)
    cache.rollback(0)
    assert_logits(feed(model, cache, TOKENS[:20]), plain("llama")[0][:20])


def test_chunked_layers_that_start_apart_are_only_good_for_a_reset() -> None:
    model = tiny("llama4")
    cache = ModelCache(model, slack=SLACK)
    feed(model, cache, TOKENS[: 3 * WINDOW])
    cache.mark()
    cache.layers[0].maybe_trim_front()
    assert not cache.can_rollback(3 * WINDOW)


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_go_back_to_the_mark_and_nowhere_else(name: str) -> None:
    model, expected = tiny(name), plain(name)[0]
    cache = ModelCache(model, slack=SLACK)
    assert cache.reason is not None
    assert "recurrent" in cache.reason
    feed(model, cache, TOKENS[:20])
    for drafted in ([wrong(20)], [wrong(20), wrong(21), wrong(22)]):
        logits = feed(model, cache, drafted)
        assert not mx.allclose(logits[0], expected[20], atol=1e-3)
        assert [n for n in range(1, 25) if cache.can_rollback(n)] == [20, 20 + len(drafted)]
        with pytest.raises(ValueError, match="cannot go back to 19"):
            cache.rollback(19)
        cache.rollback(20)
        assert cache.length == 20
    assert_logits(feed(model, cache, TOKENS[20:24]), expected[20:24])
    cache.rollback(24)
    assert_logits(feed(model, cache, TOKENS[24:27], single=True), expected[24:27])
    assert [n for n in range(1, 28) if cache.can_rollback(n)] == [25, 26, 27]


def test_a_reset_forgets_the_mark() -> None:
    model = tiny("mamba")
    cache = ModelCache(model)
    feed(model, cache, TOKENS[:20])
    feed(model, cache, TOKENS[20:22])
    cache.reset()
    model(mx.array([TOKENS[:30]]), cache=cache.layers)
    cache.advance(30)
    assert not cache.can_rollback(20)


def test_a_mark_holds_against_writes_into_the_same_array() -> None:
    module = Kinds(lambda: [ArraysCache(size=1)])
    cache = ModelCache(module)
    cache.layers[0][0] = mx.zeros((3,))
    cache.advance(1)
    cache.mark()
    state = cache.layers[0][0]
    state[...] = 7
    cache.advance(1)
    cache.rollback(1)
    assert cache.layers[0][0].tolist() == [0, 0, 0]


class Kinds:
    """A model of which only the caches matter."""

    def __init__(self, make: Any) -> None:
        self.make_cache = make


class Ring(RotatingKVCache):
    """A class that mlx-lm does not have: how it keeps its positions is anybody's guess."""


def rows(count: int, first: int = 0) -> mx.array:
    """Keys [1, 1, count, 1] that say their position."""
    return mx.arange(first, first + count, dtype=mx.float32).reshape(1, 1, -1, 1)


@pytest.mark.parametrize("layer", [lambda: Ring(8), lambda: RotatingKVCache(8, keep=4)])
def test_unknown_caches_run_plain(layer: Any) -> None:
    cache = ModelCache(Kinds(lambda: [KVCache(), layer()]))
    assert cache.reason is not None
    assert type(layer()).__name__ in cache.reason
    assert "\n" not in cache.reason
    for position in range(12):
        cache.mark()
        for c in cache.layers:
            c.update_and_fetch(rows(1, position), rows(1, position))
        cache.advance(1)
    assert [n for n in range(1, 14) if cache.can_rollback(n)] == [10, 11, 12]
    cache.rollback(12)
    before = sorted(cache.layers[1].keys.flatten().tolist())
    cache.mark()
    for c in cache.layers:
        c.update_and_fetch(rows(1, 99), rows(1, 99))
    cache.advance(1)
    cache.rollback(12)
    assert [c.offset for c in cache.layers] == [12, 12]
    assert sorted(cache.layers[1].keys.flatten().tolist()) == before


def test_lists_of_caches_are_gone_through() -> None:
    cache = ModelCache(
        Kinds(lambda: [CacheList(KVCache(), CacheList(RotatingKVCache(8), ConcatenateKVCache()))]),
        slack=SLACK,
    )
    assert cache.reason is None
    leaves = [cache.layers[0][0], *cache.layers[0][1].caches]
    shown: list[mx.array] = []
    for position in range(20):
        cache.mark()
        shown = [leaf.update_and_fetch(rows(1, position), rows(1, position))[0] for leaf in leaves]
        cache.advance(1)
    assert cache.length == 20
    cache.rollback(17)
    shown = [leaf.update_and_fetch(rows(2, 50), rows(2, 50))[0] for leaf in leaves]
    everything = [*range(17), 50, 51]
    assert [keys.flatten().tolist() for keys in shown] == [everything, everything[-9:], everything]


@pytest.mark.parametrize("name", [*ATTENTION, *RECURRENT])
def test_reset_empties_the_same_objects(name: str) -> None:
    model = tiny(name)
    cache = ModelCache(model, slack=SLACK)
    layers, objects = cache.layers, list(cache.layers)
    assert (cache.length, cache.nbytes) == (0, 0)
    feed(model, cache, TOKENS[:40])
    assert cache.nbytes == sum(array.nbytes for array in cache.arrays) > 0
    cache.reset()
    assert (cache.length, cache.nbytes, cache.torn) == (0, 0, False)
    assert cache.layers is layers
    assert all(a is b for a, b in zip(layers, objects, strict=True))
    assert_logits(feed(model, cache, TOKENS[:20]), plain(name)[0][:20])
    cache.rollback(0)
    assert (cache.length, cache.nbytes) == (0, 0)


def test_plain_layers_are_mlx_lms_own() -> None:
    assert [type(layer) for layer in ModelCache(tiny("llama")).layers] == [KVCache, KVCache]


@pytest.mark.parametrize("name", [*ATTENTION, *RECURRENT, "qwen3_5"])
def test_a_pass_that_begins_before_it_is_built_is_the_same(name: str) -> None:
    model, cache = tiny(name), ModelCache(tiny(name))
    begun: list[mx.array] = []
    for at in range(0, 20, 5):
        cache.mark()
        ids = mx.array([TOKENS[at : at + 5]])
        logits = model(ids, cache=cache.early(begun.append))[0]
        cache.advance(5)
        assert_logits(logits, plain(name)[0][at : at + 5])
    assert cache.length == 20
    assert begun or name == "mamba", "no layer has keys"


@pytest.mark.parametrize(("gpu", "early"), [(True, 2), (False, 4)])
def test_a_gpu_begins_at_the_first_layers_and_a_cpu_at_all(
    monkeypatch: pytest.MonkeyPatch, gpu: bool, early: int
) -> None:
    monkeypatch.setattr("macspec.cache.on_gpu", lambda: gpu)
    cache = ModelCache(Kinds(lambda: [KVCache() for _ in range(4)]))
    begun: list[mx.array] = []
    for layer in cache.early(begun.append):
        layer.update_and_fetch(rows(3), rows(3))
    assert len(begun) == early


def test_nbytes_counts_keys_and_values() -> None:
    cache = ModelCache(Kinds(lambda: [KVCache()]))
    cache.layers[0].update_and_fetch(rows(3), rows(3))
    assert cache.nbytes == 2 * 16 * 4
