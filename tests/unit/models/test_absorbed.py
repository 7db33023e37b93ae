"""Passes of few rows over a cache of latents multiply no position's latent for every head."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.models.glm4_moe_lite import Glm4MoeLiteAttention, ModelArgs
from mlx_lm.models.mla import MultiLinear
from tinymodels import tiny
from treemodels import LATENT, VOCABULARY, treelike

from macspec.kernels import Kernels
from macspec.metal.hooks import Hooks
from macspec.models import absorbed
from macspec.models.absorbed import TRIED, Absorbed, absorbed_of
from macspec.models.cached import CachedModel, TreePass
from macspec.verification import Tree

CLOSE = 2e-5
NAMES = [*LATENT, "kimi_linear"]


def model_named(name: str) -> Any:
    return tiny(name) if name == "kimi_linear" else treelike(name)


@contextmanager
def multiplied() -> Iterator[list[int]]:
    """The positions whose latents are multiplied, for each call inside."""
    calls: list[int] = []
    original = MultiLinear.__call__

    def counting(self: Any, x: mx.array, transpose: bool = True) -> Any:
        if x.shape[1] == 1:  # queries and outputs have all heads
            calls.append(x.shape[2])
        return original(self, x, transpose)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MultiLinear, "__call__", counting)
        yield calls


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_models_own_form(name: str) -> None:
    module, dice = model_named(name), random.Random(name)
    model = CachedModel(module, VOCABULARY)
    assert (bool(model.absorbed), model.absorbed.reason) == (True, None)
    text = [dice.randrange(VOCABULARY) for _ in range(90)]
    for read, rows in ((1, 2), (30, 5), (57, 33)):
        model.rollback(0)
        own = make_prompt_cache(module)
        mx.eval(module(mx.array([text[:read]]), cache=own))
        expected = module(mx.array([text[read : read + rows]]), cache=own)[0]
        model.read(text[:read])
        with multiplied() as calls:
            got = model.logits(mx.array(text[read : read + rows], mx.uint32), rows, mx.async_eval)
        assert not calls
        assert float(mx.abs(got - expected).max()) < CLOSE
        assert model.length == read + rows


def test_every_row_of_a_tree_is_absorbed() -> None:
    model = CachedModel(treelike("glm4_moe_lite"), VOCABULARY)
    passes = TreePass(model)
    assert passes.reason is None
    model.read(list(range(20)))
    with multiplied() as calls:
        tree = Tree(mx.array([3, 4, 5], mx.uint32), (-1, 0, 0))
        got = passes.logits(mx.array([7], mx.uint32), tree)
    assert not calls
    model.rollback(20)
    chain = model.logits(mx.array([7, 3, 5], mx.uint32), 3)
    assert np.allclose(np.array(got)[[0, 1, 3]], np.array(chain), atol=CLOSE)


class Watching(Kernels):
    """Kernels that see every place of a pass, and leave it to MLX."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.hooks, self.keys, self.matmuls = Hooks(module), [], 0

    def passing(self, rows: int, sees: Any = None, mask: Any = None) -> Any:
        return self.hooks.handled(self)

    def matmul(self, layer: Any, x: mx.array) -> None:
        self.matmuls += 1

    def attention(self, queries: mx.array, keys: mx.array, *others: Any) -> None:
        self.keys.append(keys.shape)


def test_kernels_see_the_pass_as_it_is_computed() -> None:
    module = treelike("glm4_moe_lite", q_lora_rank=32)
    nn.quantize(module, group_size=32, bits=8, class_predicate=lambda path, _: "q_a_proj" in path)
    kernels = Watching(module)
    model = CachedModel(module, VOCABULARY, kernels=kernels)
    model.read(list(range(30)))
    logits = model.logits(mx.array([3, 1, 4], mx.uint32), 3)
    assert kernels.keys == [(1, 1, 33, 32)] * 2  # the latents of two layers, for all heads
    assert kernels.matmuls == 2
    model.rollback(30)
    own = module(mx.array([[3, 1, 4]]), cache=model.cache.layers)[0]
    assert mx.allclose(logits, own, atol=CLOSE)


def flash(bits: int | None = None) -> Absorbed:
    """One attention layer in the shape of GLM-4.7-Flash, without values."""
    arguments = ModelArgs(
        hidden_size=64,
        num_attention_heads=2,
        q_lora_rank=64,
        kv_lora_rank=512,
        qk_nope_head_dim=192,
        qk_rope_head_dim=64,
        v_head_dim=256,
    )
    layer: Any = nn.Module()
    layer.self_attn = Glm4MoeLiteAttention(arguments)
    if bits is not None:
        nn.quantize(layer, bits=bits)
    return Absorbed(layer)


@pytest.mark.parametrize("bits", [None, 4])
@pytest.mark.parametrize(
    ("rows", "length", "pays"),
    [
        (1, 8192, False),  # mlx-lm's own
        (2, 0, False),  # nothing to multiply beyond the rows themselves
        (2, 16, True),
        (33, 1024, True),
        (390, 32768, True),
        (512, 1024, False),  # prefill
        (2048, 32768, False),
    ],
)
def test_where_it_pays(rows: int, length: int, pays: bool, bits: int | None) -> None:
    assert flash(bits).pays(rows, length) is pays


def test_a_prefill_chunk_is_as_the_model_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = CachedModel(treelike("deepseek_v3"), VOCABULARY)
    with multiplied() as calls:
        model.read(list(range(40)))
        assert calls == [40, 40] * 2  # keys and values of two layers
        monkeypatch.setattr(Absorbed, "pays", lambda *_: True)
        model.read(list(range(2)))
    assert len(calls) == 4


def wrong(self: Any, *args: Any, attend: Any = absorbed._Attention.attend, **named: Any) -> Any:
    return attend(self, *args, **named) * 1.05


@pytest.mark.parametrize("mistake", [wrong, None])
def test_a_model_that_differs_keeps_its_own_form(
    mistake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = treelike("bailing_hybrid")
    monkeypatch.delitem(vars(module), TRIED, raising=False)
    monkeypatch.setattr(absorbed._Attention, "attend", mistake)
    found = absorbed_of(module, VOCABULARY)
    assert found.reason is not None
    assert not found.pays(2, 100)
    assert absorbed_of(module, VOCABULARY) is found
    monkeypatch.delitem(vars(module), TRIED)


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_the_model_is_as_before_after_a_pass(error: type[BaseException] | None) -> None:
    module = treelike("deepseek_v3")
    model = CachedModel(module, VOCABULARY)
    before = [id(child) for _, child in module.named_modules()]
    with suppress(KeyboardInterrupt), model.absorbed.on():
        assert [id(child) for _, child in module.named_modules()] != before
        if error is not None:
            raise error
    assert [id(child) for _, child in module.named_modules()] == before


def test_other_models_have_nothing_to_absorb() -> None:
    found = absorbed_of(tiny("llama"), VOCABULARY)
    assert (bool(found), found.reason, found.pays(2, 100)) == (False, None, False)
