"""Hidden rows: the logits stay as they are, and the rows are those of the committed tokens."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from architectures import ARCHITECTURES
from mlx import nn
from plainkernels import plain_kernels
from tinymodels import VOCABULARY, built, tiny

from macspec.cache import ModelCache
from macspec.models.cached import CachedModel, TreePass
from macspec.tap import FINAL, KEPT, Tap
from macspec.verification import Tree

TEXT = [5, 9, 33, 2, 7, 41, 13, 8, 21, 30, 44, 3, 17, 28, 6, 50]
FAMILIES = ("llama", "gemma3_text", "gpt_oss", "gemma4_text", "qwen3_5", "rwkv7", "mamba2")


def straight(module: Any, tokens: list[int], layers: tuple[int, ...]) -> list[mx.array]:
    """The rows of a text, read at once."""
    with Tap(module, layers).listening() as heard:
        module(mx.array([tokens]), cache=ModelCache(module).layers)
    return [heard[it][0][0] for it in layers]


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_survive_rollbacks_and_change_no_logits(family: str) -> None:
    module = tiny(family)
    layers = (0, len(module.layers) - 1, FINAL)
    model, plain = CachedModel(module, VOCABULARY), CachedModel(module, VOCABULARY)
    hidden = model.show(layers)
    assert hidden.tap.reason is None
    for it in (model, plain):
        it.read(TEXT[:6])
    passes = [([*TEXT[6:9], 1, 1], 9), ([TEXT[9]], 10), ([*TEXT[10:14], 2], 14)]
    for tokens, kept in passes:
        rows = [it.logits(mx.array(tokens, mx.uint32), len(tokens)) for it in (model, plain)]
        assert mx.array_equal(*rows)
        for it in (model, plain):
            it.rollback(kept)
        assert (hidden.start, hidden.stop) == (0, kept)
    expected = straight(module, TEXT[:14], layers)
    for row, other in zip(hidden.rows(3, 14), expected, strict=True):
        assert mx.allclose(row, other[3:], atol=1e-4)
    hidden.drop(9)
    assert hidden.start >= 6


def test_a_kept_branch_leaves_its_rows() -> None:
    module = tiny("llama")
    model = CachedModel(module, VOCABULARY)
    hidden = model.show((0, FINAL))
    model.read(TEXT[:4])
    trees = TreePass(model)
    tree = Tree(mx.array([40, TEXT[5], TEXT[6]], mx.uint32), (-1, -1, 1))
    trees.logits(mx.array(TEXT[4:5], mx.uint32), tree)
    trees.keep([1, 2])
    for row, other in zip(hidden.rows(0, 7), straight(module, TEXT[:7], (0, FINAL)), strict=True):
        assert mx.allclose(row, other, atol=1e-4)


def test_only_the_newest_rows_are_kept() -> None:
    model = CachedModel(tiny("llama"), VOCABULARY)
    hidden = model.show((FINAL,))
    for _ in range(0, KEPT + 1200, 400):
        model.read([1] * 400)
    assert hidden.stop == model.length
    assert KEPT <= hidden.stop - hidden.start < KEPT + 400


def test_the_heads_logits_are_the_models() -> None:
    module = tiny("qwen3_5")
    tap = Tap(module, (FINAL,))
    with tap.listening() as heard:
        logits = module(mx.array([TEXT]))
    assert mx.array_equal(tap.logits(heard[FINAL][0]), logits)
    assert mx.array_equal(tap.embedding(mx.array(TEXT)), module.model.embed_tokens(mx.array(TEXT)))


def _in_groups(_: str, layer: Any) -> bool:
    return hasattr(layer, "to_quantized") and layer.weight.shape[-1] % 32 == 0


@pytest.mark.parametrize("name", ["llama", "gemma3_text"])
@pytest.mark.parametrize("bits", [None, 8])
def test_logits_of_a_part_of_the_vocabulary(name: str, bits: int | None) -> None:
    """With an output head of its own and a tied one, quantized or not."""
    module = built(ARCHITECTURES[name])
    if bits is not None:
        nn.quantize(module, group_size=32, bits=bits, class_predicate=_in_groups)
    tap, ids = Tap(module, (FINAL,)), mx.array([3, 4, 40, 7])
    rows = mx.random.normal((2, 64), key=mx.random.key(1))
    logits = tap.logits(rows)
    assert mx.allclose(tap.logits_of(ids)(rows), logits[:, ids], atol=1e-5)
    assert logits.shape[1] > 4


UNSEEN = {
    **dict.fromkeys(("deepseek_v41", "gemma3n", "iquestloopcoder", "nanbeige"), "one row for each"),
    "talkie": "no output head of a known kind",
}
"""What is not as the tap expects it: streams of several rows, loops over layers."""


def test_every_architecture_shows_its_rows_or_is_refused() -> None:
    """The trial compares the logits, bit for bit."""
    with plain_kernels():
        for name in ARCHITECTURES:
            module = tiny(name)
            reason = Tap(module, (0, len(module.layers) - 1, FINAL)).reason
            expected = UNSEEN.get(name)
            assert expected in (reason or "") if expected else reason is None, (name, reason)


def test_the_trial_stays_within_a_small_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row beyond the embedding is whatever memory holds there, and differs from pass to pass."""
    module, seen = built({**ARCHITECTURES["llama"], "vocab_size": 8}), list[int]()
    embed = nn.Embedding.__call__

    def noted(self: nn.Embedding, ids: mx.array) -> mx.array:
        seen.extend(ids.flatten().tolist())
        return embed(self, ids)

    monkeypatch.setattr(nn.Embedding, "__call__", noted)
    assert Tap(module, (0, FINAL)).reason is None
    assert seen
    assert max(seen) < 8


def test_a_layer_that_does_not_exist_is_refused() -> None:
    assert Tap(tiny("llama"), (2,)).reason == "it has 2 layers, and no layer 2"


def test_a_layer_that_runs_twice_is_refused() -> None:
    module = tiny("llama")
    second = module.layers[1]
    module.layers[1] = module.layers[0]
    try:
        reason = Tap(module, (0,)).reason
    finally:
        module.layers[1] = second
    assert reason == "its layers run more than once"
