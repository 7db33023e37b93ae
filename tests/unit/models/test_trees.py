"""A tree in one pass gives what each of its branches gives as a chain, and leaves no trace."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models.cache import KVCache
from tinymodels import tiny
from treemodels import OFF, ON, VOCABULARY, treelike

from macspec import load_pair
from macspec.models import Pair, cached
from macspec.models.cached import PASS_TAIL, CachedModel, TreePass
from macspec.verification import Tree

CLOSE = 1e-4
EDGES = ((-1,), (-1, -1), (-1, 0, 0), (-1, 0, 1, 0, 3), (-1, -1, 1, 0, 2, 4, 2))
REFUSED = (
    "llama-sliding",
    "gemma3_text",
    "gpt_oss",
    "gemma4_text",
    "llama4",
    "mamba",
    "qwen3_next",
)


def ids(dice: random.Random, count: int, vocabulary: int = VOCABULARY) -> list[int]:
    return [dice.randrange(vocabulary) for _ in range(count)]


def any_edges(dice: random.Random, nodes: int) -> tuple[int, ...]:
    return tuple(dice.randrange(max(-1, node - 3), node) for node in range(nodes))


def branch(edges: tuple[int, ...], node: int) -> list[int]:
    return [] if node == -1 else [*branch(edges, edges[node]), node]


def check(model: CachedModel, text: list[int], unread: int, edges: tuple[int, ...]) -> float:
    """Compare every row of a tree after ``text`` with chains; the largest difference."""
    passes = TreePass(model)
    assert passes.reason is None
    dice = random.Random(len(text))
    tokens = ids(dice, len(edges), model.vocabulary)
    read = len(text) - unread

    model.rollback(0)
    if read:
        model.read(text[:read])
    got = passes.logits(mx.array(text[read:], mx.uint32), tree_of(tokens, edges))
    assert got.shape == (len(edges) + 1, model.vocabulary)
    assert model.length == len(text) + len(edges)

    worst = 0.0
    for node in range(-1, len(edges)):
        path = branch(edges, node)
        model.rollback(read)
        chain = model.logits(mx.array(text[read:] + [tokens[i] for i in path], mx.uint32), 1)[0]
        worst = max(worst, float(np.max(np.abs(np.array(chain) - np.array(got[node + 1])))))
    return worst


def tree_of(tokens: list[int], edges: tuple[int, ...]) -> Tree:
    return Tree(mx.array(tokens, mx.uint32), edges)


@pytest.mark.parametrize("name", ON)
def test_a_tree_gives_what_its_branches_give(name: str) -> None:
    dice = random.Random(name)
    model = CachedModel(treelike(name), VOCABULARY)
    for edges in (*EDGES[2:], any_edges(dice, 8)):
        unread = dice.randint(1, PASS_TAIL)
        text = ids(dice, unread + dice.choice([0, 1, 30, 90]))
        assert check(model, text, unread, edges) < CLOSE


@pytest.mark.parametrize(
    ("role", "nodes", "length"),
    [("target", 5, 40), ("draft", 4, 16), ("draft", 12, 200), ("draft", 32, 90)],
)
def test_the_built_in_pair_takes_trees(pocket: Pair, role: str, nodes: int, length: int) -> None:
    found: Any = getattr(pocket, role)
    model = CachedModel(found.module, pocket.vocabulary)
    dice = random.Random(nodes)
    text = ids(dice, length, pocket.vocabulary)
    assert check(model, text, dice.randint(1, PASS_TAIL), any_edges(dice, nodes)) < CLOSE


def test_a_chain_is_a_tree_too() -> None:
    model = CachedModel(treelike("llama"), VOCABULARY)
    assert check(model, ids(random.Random(5), 40), 3, tuple(range(-1, 7))) < CLOSE


@pytest.mark.parametrize("narrower", [False, True])
def test_logits_are_as_wide_as_the_vocabulary(narrower: bool) -> None:
    width = VOCABULARY - 7 if narrower else VOCABULARY + 7
    model = CachedModel(treelike("llama"), width)
    logits = TreePass(model).logits(mx.array([1], mx.uint32), tree_of([2, 3], (-1, -1)))
    assert logits.shape == (3, width)


def window_of(length: int, edges: tuple[int, ...], unread: int, window: int) -> Any:
    """The mask that the model would get, from a layer that sees no further than ``window``."""
    tree = tree_of([0] * len(edges), edges)
    steps = [*range(unread), *(unread - 1 + depth for depth in tree.depths)]
    among = np.tri(len(steps), dtype=np.bool_)
    among[unread:, unread:] = tree.sees
    mask = mx.array(np.concatenate([np.ones((len(steps), length), np.bool_), among], axis=1))
    places = mx.array(steps, mx.int32) + length
    return cached._Layer(KVCache(), mask, length, places).make_mask(len(steps), window)


def test_a_window_counts_places_and_not_rows() -> None:
    edges = (-1, 0, 1, 0)
    mask = window_of(6, edges, 2, 3)
    # Node 3 stands at place 9, behind node 0 at 8 and the last committed token at 7.
    assert np.flatnonzero(np.array(mask[-1])).tolist() == [7, 8, 11]


@pytest.mark.parametrize("name", OFF)
def test_a_model_that_puts_positions_to_other_uses_is_refused(name: str) -> None:
    passes = TreePass(CachedModel(treelike(name), VOCABULARY))
    assert passes.reason is not None
    assert passes.reason.startswith("trees are off: this model cannot run the rows of a tree (")
    with pytest.raises(ValueError, match="trees are off"):
        passes.logits(mx.array([1]), tree_of([2, 3], (-1, -1)))


@pytest.mark.parametrize("name", REFUSED)
def test_a_cache_that_is_not_plain_is_refused_by_name(name: str) -> None:
    model = CachedModel(tiny(name), VOCABULARY)
    reason = TreePass(model).reason
    assert reason is not None
    assert "\n" not in reason
    kinds = {type(layer).__name__ for layer in model.cache.layers} - {"KVCache"}
    assert all(kind in reason for kind in kinds)


def test_a_quantized_cache_is_refused() -> None:
    reason = TreePass(CachedModel(tiny("llama-wide"), VOCABULARY, kv_bits=8)).reason
    assert reason is not None
    assert "QuantizedKVCache" in reason


def state(module: Any) -> list[tuple[str, int]]:
    """Every module below by name and identity, in order, and every entry of each."""
    return [
        (f"{name}.{key}", id(value))
        for name, child in module.named_modules()
        for key, value in child.items()
    ]


def test_the_module_is_as_before_after_a_pass() -> None:
    module = treelike("qwen3")
    before = state(module)
    assert any(name.endswith(".rope") for name, _ in before)
    model = CachedModel(module, VOCABULARY)
    passes = TreePass(model)
    assert state(module) == before
    mx.eval(passes.logits(mx.array([1, 2], mx.uint32), tree_of([3, 4], (-1, -1))))
    assert state(module) == before
    assert all(type(layer) is KVCache for layer in model.cache.layers)
    assert all("make_mask" not in vars(layer) for layer in model.cache.layers)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("layer", [0, 1])
def test_the_module_is_as_before_after_an_exception(
    error: type[BaseException], layer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = treelike("qwen3")
    model = CachedModel(module, VOCABULARY)
    passes, before = TreePass(model), state(module)
    model.read([1, 2, 3])
    broken, update = model.cache.layers[layer], KVCache.update_and_fetch

    def failing(self: Any, keys: mx.array, values: mx.array) -> Any:
        if self is broken:
            raise error
        return update(self, keys, values)

    with monkeypatch.context() as patch:
        patch.setattr(KVCache, "update_and_fetch", failing)
        with pytest.raises(error):
            passes.logits(mx.array([4], mx.uint32), tree_of([5, 6], (-1, -1)))
    assert state(module) == before
    assert model.cache.torn
    model.rollback(3)
    assert model.length == 3
    assert check(model, [1, 2, 3, 4], 1, (-1, -1, 0)) < CLOSE


def test_a_wrapper_left_behind_by_an_interrupt_does_nothing_and_is_found_again() -> None:
    module = treelike("mixtral")
    model = CachedModel(module, VOCABULARY)
    text = mx.array([1, 2, 3, 4], mx.uint32)
    expected = model.logits(text, 4)
    before = state(module)
    for holder, key, rope in TreePass(model)._ropes:
        holder[key] = rope
    try:
        model.rollback(0)
        assert mx.array_equal(model.logits(text, 4), expected)
        assert check(model, [5, 6, 7], 2, (-1, 0, -1)) < CLOSE
    finally:
        mended = state(module)
        for holder, key, rope in TreePass(model)._ropes:
            holder[key] = rope.rope
    assert mended == before == state(module)


def test_two_sessions_on_one_model_do_not_meet() -> None:
    module = treelike("llama")
    one, other = (CachedModel(module, VOCABULARY) for _ in range(2))
    first, second = TreePass(one), TreePass(other)
    unread, tree = mx.array([1, 2], mx.uint32), tree_of([3, 4, 5], (-1, -1, 1))
    # Built one after the other and evaluated together.
    a = first.logits(unread, tree)
    chain = CachedModel(module, VOCABULARY).logits(mx.array([1, 2, 4, 5], mx.uint32), 3)
    b = second.logits(unread, tree)
    mx.eval(a, b, chain)
    assert mx.array_equal(a, b)
    assert mx.allclose(a[mx.array([0, 2, 3])], chain, atol=CLOSE)


def slots(self: Any, x: mx.array, offset: Any = 0) -> Any:
    """Positions by row, as in a chain."""
    places = self._owner.places
    return self.rope(x, offset if places is None else int(places[0].item()))


def causal(self: Any, rows: int, window_size: Any = None, return_array: bool = False) -> Any:
    """Every row sees all rows before it."""
    length = self._mask.shape[1]
    return mx.array(np.tri(rows, length, length - rows, dtype=np.bool_))


def blind(self: Any, rows: int, window_size: Any = None, return_array: bool = False) -> Any:
    """A node does not see the one that it continues."""
    mask = np.array(self._mask)
    mask[-1, -2] = False
    return mx.array(mask)


def one_late(self: Any, x: mx.array, offset: Any = 0) -> Any:
    """The last row stands a place too far."""
    places = self._owner.places
    late = places + (mx.arange(places.shape[0]) == places.shape[0] - 1)
    return self.rope(x.transpose(2, 1, 0, 3), offset=late).transpose(2, 1, 0, 3)


def first_rows(self: Any, length: int, path: Any, rows: Any) -> None:
    """As many rows stay, but the first ones."""
    self.rollback(length + len(path))


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "positions by row": (cached._Rope, "__call__", slots),
    "one position late": (cached._Rope, "__call__", one_late),
    "a causal mask": (cached._Layer, "make_mask", causal),
    "a node that misses its parent": (cached._Layer, "make_mask", blind),
    "rows not moved": (cached.ModelCache, "compact", first_rows),
}


def rounded(kind: str, pocket: Pair) -> Any:
    assert pocket.draft is not None
    if kind == "float32":
        return pocket.draft.module
    draft = load_pair(draft="built-in").draft
    assert draft is not None
    module: Any = draft.module
    if kind.endswith("bit"):
        nn.quantize(module, group_size=32, bits=int(kind[0]))
    else:
        module.set_dtype(getattr(mx, kind))
    return module


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16", "8bit", "4bit"])
def test_the_trial_tells_right_from_wrong(
    kind: str, pocket: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = CachedModel(rounded(kind, pocket), pocket.vocabulary)
    assert TreePass(model).reason is None
    for holder, name, changed in MUTANTS.values():
        with monkeypatch.context() as patch:
            patch.setattr(holder, name, changed)
            reason = TreePass(model).reason
            assert (
                reason
                == "trees are off: this model's logits differ between a tree and its branches"
            )


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("name", ["llama", "phi3", "deepseek_v3", "gemma2"])
def test_the_trial_rejects(name: str, mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, attribute, changed = MUTANTS[mutant]
    monkeypatch.setattr(holder, attribute, changed)
    assert TreePass(CachedModel(treelike(name), VOCABULARY)).reason is not None
