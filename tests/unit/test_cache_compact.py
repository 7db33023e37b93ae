"""Keeping one branch of a tree: afterwards nothing tells that the others had ever been there."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import CacheList, KVCache, QuantizedKVCache
from test_cache import Kinds, rows
from tinymodels import VOCABULARY, tiny

from macspec.cache import ModelCache
from macspec.models import Pair
from macspec.models.cached import CachedModel, TreePass
from macspec.verification import Tree

WIDTH = 3

Rows = list[tuple[mx.array, mx.array]]


def numbered(count: int, first: int = 0) -> mx.array:
    """Keys [1, 2, count, WIDTH] that say their position, head and column."""
    return rows(count, first) + mx.array([0.0, 0.5])[:, None, None] + mx.arange(WIDTH) / 8


def plain_cache(layers: int = 2) -> ModelCache:
    return ModelCache(Kinds(lambda: [KVCache() for _ in range(layers)]))


def feed(cache: ModelCache, count: int, first: int) -> Rows:
    """Append to every layer; return what was appended."""
    appended = [
        (numbered(count, first) + 1000 * number, -numbered(count, first))
        for number in range(len(cache.layers))
    ]
    cache.mark()
    for layer, (keys, values) in zip(cache.layers, appended, strict=True):
        layer.update_and_fetch(keys, values)
    cache.advance(count)
    return appended


def held(cache: ModelCache) -> list[tuple[Any, Any]]:
    return [
        tuple(stored[..., : layer.offset, :].tolist() for stored in (layer.keys, layer.values))
        for layer in cache.layers
    ]


def positions(cache: ModelCache) -> list[int]:
    layer = cache.layers[0]
    shown: Any = layer.keys[0, 0, : layer.offset, 0].tolist()
    return [int(value) for value in shown]


paths = st.lists(st.booleans(), min_size=1, max_size=32).map(
    lambda kept: (len(kept), [row for row, stays in enumerate(kept) if stays])
)


@settings(max_examples=30, deadline=None, database=None, derandomize=True)
@given(st.lists(paths, min_size=1, max_size=8), st.sampled_from([4, 16, 256]))
def test_any_rows_may_stay(rounds: list[tuple[int, list[int]]], step: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KVCache, "step", step)
        cache, chain = plain_cache(), plain_cache()
        feed(cache, 5, 0)
        feed(chain, 5, 0)
        fed = 5
        for count, path in rounds:
            length = cache.length
            appended = feed(cache, count, fed)
            cache.compact(length, path, appended)
            for row in path:
                feed(chain, 1, fed + row)
            fed += count
            assert cache.length == chain.length == length + len(path)
            assert held(cache) == held(chain)


def test_a_rollback_into_what_was_moved() -> None:
    cache = plain_cache()
    feed(cache, 4, 0)
    cache.compact(4, (0, 2, 5), feed(cache, 6, 10))
    assert positions(cache) == [0, 1, 2, 3, 10, 12, 15]
    cache.rollback(6)
    assert positions(cache) == [0, 1, 2, 3, 10, 12]
    feed(cache, 2, 20)
    assert positions(cache) == [0, 1, 2, 3, 10, 12, 20, 21]


def test_the_first_rows_are_not_touched() -> None:
    cache = plain_cache()
    feed(cache, 4, 0)
    appended = feed(cache, 6, 10)
    before = [(layer.keys, layer.values) for layer in cache.layers]
    cache.compact(4, (0, 1, 2), appended)
    assert positions(cache) == [0, 1, 2, 3, 10, 11, 12]
    cache.compact(4, (), appended)
    assert positions(cache) == [0, 1, 2, 3]
    after = [(layer.keys, layer.values) for layer in cache.layers]
    assert all(
        a is b for x, y in zip(before, after, strict=True) for a, b in zip(x, y, strict=True)
    )


@pytest.mark.parametrize("path", [(0, 6), (6,), (2, 1), (1, 1), (-1, 2), (0, 1, 2, 3, 4, 5, 6)])
def test_rows_that_are_not_there_cannot_stay(path: tuple[int, ...]) -> None:
    cache = plain_cache()
    feed(cache, 4, 0)
    appended = feed(cache, 6, 10)
    with pytest.raises(ValueError, match="cannot"):
        cache.compact(4, path, appended)
    assert positions(cache) == [0, 1, 2, 3, *range(10, 16)]


@pytest.mark.parametrize(
    "layer",
    [lambda: QuantizedKVCache(group_size=32, bits=8), lambda: CacheList(KVCache(), KVCache())],
)
def test_other_caches_keep_leading_rows_only(layer: Any) -> None:
    cache = ModelCache(Kinds(lambda: [KVCache(), layer()]))
    filler = mx.zeros((1, 1, 6, 32))
    cache.mark()
    for leaf in cache._leaves:
        leaf.update_and_fetch(filler, filler)
    cache.advance(6)
    appended = [(filler, filler)] * 2
    with pytest.raises(ValueError, match=r"rows \[0, 2\] after 3 of 6 cannot stay"):
        cache.compact(3, (0, 2), appended)
    assert cache.length == 6
    cache.compact(3, (0, 1), appended)
    assert cache.length == 5


def test_a_torn_cache_keeps_nothing() -> None:
    cache = plain_cache()
    feed(cache, 4, 0)
    appended = feed(cache, 6, 10)
    cache.mark()
    with pytest.raises(ValueError, match="cannot stay"):
        cache.compact(4, (1, 2), appended)
    cache.rollback(4)
    assert positions(cache) == [0, 1, 2, 3]


def test_an_interrupt_between_layers_leaves_the_committed_positions_whole() -> None:
    cache = plain_cache()
    feed(cache, 4, 0)
    expected = held(cache)
    appended = feed(cache, 6, 10)
    broken = cache.layers[1]
    keys, broken.keys = broken.keys, None
    with pytest.raises(TypeError):
        cache.compact(4, (1, 3), appended)
    broken.keys = keys
    assert cache.length == 10
    assert positions(cache)[4:6] == [11, 13], "the first layer has moved"
    cache.rollback(4)
    assert held(cache) == expected


def test_moving_rows_copies_rows_and_not_the_cache() -> None:
    cache = ModelCache(Kinds(lambda: [KVCache()]))

    def appended(count: int) -> Rows:
        keys, values = (mx.full((1, 8, count, 64), value) for value in (1.0, 2.0))
        cache.mark()
        shown = cache.layers[0].update_and_fetch(keys, values)
        cache.advance(count)
        # As in a pass, what is computed last depends on all keys and values.
        mx.eval(sum(part.sum() for part in shown))
        return [(keys, values)]

    appended(4000)
    assert cache.nbytes > 8_000_000
    for path in ((0, 2, 5), (1,), (3, 6)):
        length = cache.length
        rows_of_pass = appended(8)
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        cache.compact(length, path, rows_of_pass)
        appended(4)
        assert mx.get_peak_memory() - before < cache.nbytes / 8


def grown(module: Any, vocabulary: int, *, seed: int, rounds: int) -> tuple[list[Any], list[Any]]:
    """Keys and values by layer after rounds of trees, and of chains of what was accepted."""
    dice = random.Random(seed)
    model, chain = CachedModel(module, vocabulary), CachedModel(module, vocabulary)
    passes = TreePass(model)
    assert passes.reason is None
    text = [dice.randrange(vocabulary) for _ in range(dice.randint(3, 60))]
    for _ in range(rounds):
        nodes = dice.randint(1, 8)
        edges = tuple(dice.randrange(-1, node) for node in range(nodes))
        tokens = [dice.randrange(vocabulary) for _ in edges]
        node, path = dice.randrange(nodes), []
        while node != -1:
            path.insert(0, node)
            node = edges[node]
        branch = [tokens[node] for node in path]

        tree = Tree(mx.array(tokens, mx.uint32), edges)
        mx.eval(passes.logits(model.unread(text), tree))
        passes.keep(path)
        unread = chain.unread(text)
        # As many rows as the tree had: on some machines the arithmetic depends on it.
        spare = [dice.randrange(vocabulary) for _ in range(nodes - len(path))]
        mx.eval(chain.logits(mx.concatenate([unread, mx.array(branch + spare, mx.uint32)]), 1))
        chain.rollback(len(text) + len(path))
        text += [*branch, dice.randrange(vocabulary)]
        assert model.length == chain.length == len(text) - 1

    def stored(one: CachedModel) -> list[Any]:
        return [
            array[..., : one.length, :]
            for layer in one.cache.layers
            for array in (layer.keys, layer.values)
        ]

    return stored(model), stored(chain)


def assert_same(ours: list[Any], theirs: list[Any]) -> None:
    exact = mx.default_device() == mx.Device(mx.cpu)
    for a, b in zip(ours, theirs, strict=True):
        assert mx.array_equal(a, b) if exact else mx.allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "llama-wide", "llama-middle"])
def test_trees_leave_what_chains_leave(name: str) -> None:
    for seed in range(3):
        assert_same(*grown(tiny(name), VOCABULARY, seed=seed, rounds=6))


def test_trees_leave_what_chains_leave_in_the_built_in_draft(pocket: Pair) -> None:
    assert pocket.draft is not None
    assert_same(*grown(pocket.draft.module, pocket.vocabulary, seed=1, rounds=12))


def test_trees_leave_what_chains_leave_in_the_built_in_target(pocket: Pair) -> None:
    assert_same(*grown(pocket.target.module, pocket.vocabulary, seed=9, rounds=2))
