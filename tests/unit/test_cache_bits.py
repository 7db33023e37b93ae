"""Quantized caches: what they are given, and what is refused in one line."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache, QuantizedKVCache
from tinymodels import VOCABULARY, tiny

from macspec.cache import ModelCache
from macspec.errors import BadOptionError
from macspec.layercaches import leaves
from macspec.models.rollback import recorder_of


@pytest.mark.parametrize(("name", "group"), [("llama-wide", 64), ("llama-middle", 32)])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_every_layer_is_quantized_from_the_first_token(name: str, group: int, bits: int) -> None:
    model = tiny(name)
    cache = ModelCache(model, kv_bits=bits)
    assert [type(layer) for layer in cache.layers] == [QuantizedKVCache] * 2
    assert [(layer.group_size, layer.bits) for layer in cache.layers] == [(group, bits)] * 2
    assert (cache.length, cache.nbytes, cache.reason) == (0, 0, None)
    objects = list(cache.layers)
    mx.eval(model(mx.array([[1, 2, 3]]), cache=cache.layers))
    assert cache.length == 3
    assert all(a is b for a, b in zip(cache.layers, objects, strict=True))
    full = ModelCache(model)
    mx.eval(model(mx.array([[1, 2, 3]]), cache=full.layers))
    assert cache.nbytes < full.nbytes / 2


@pytest.mark.parametrize("name", ["gemma3_text", "llama4", "qwen3_next", "falcon_h1"])
def test_layers_that_keep_no_position_or_few_stay_as_they_are(name: str) -> None:
    model = tiny(name)
    plain = list(leaves(ModelCache(model).layers))
    cache = ModelCache(model, kv_bits=8, recorder=recorder_of(model, VOCABULARY))
    kinds = [type(leaf) for leaf in leaves(cache.layers)]
    full = [type(leaf) is KVCache for leaf in plain]
    assert 0 < sum(full) < len(full)
    assert [kind is QuantizedKVCache for kind in kinds] == full
    assert all(q or kind is type(p) for q, kind, p in zip(full, kinds, plain, strict=True))

    def fed(cache: ModelCache, tokens: list[int]) -> mx.array:
        cache.mark()
        with cache.recording(len(tokens)):
            logits: mx.array = model(mx.array([tokens]), cache=cache.layers)[0, -1]
        cache.advance(len(tokens))
        return logits

    fed(cache, list(range(20)))
    fed(cache, [3, 4, 5])
    cache.rollback(21)
    straight = ModelCache(model, kv_bits=8)
    fed(straight, list(range(20)))
    fed(straight, [3])
    assert mx.allclose(fed(cache, [7]), fed(straight, [7]), atol=1e-4)


class Reader:
    """A model whose attention takes the keys as one array."""

    def make_cache(self) -> list[Any]:
        return [KVCache()]

    def __call__(self, tokens: mx.array, cache: list[Any]) -> mx.array:
        new = mx.zeros((1, 1, tokens.shape[1], 64))
        keys, _ = cache[0].update_and_fetch(new, new)
        return keys.sum()


@pytest.mark.parametrize(
    ("model", "bits", "message"),
    [
        ("llama-wide", 3, "kv-bits must be 2, 4 or 8, not 3"),
        ("llama-narrow", 8, "head size that 32 divides, and this model's is 8"),
        ("mamba", 4, "layers that keep every position, and this model has only ArraysCache"),
        (Reader(), 8, "attention cannot read a quantized cache"),
    ],
)
def test_refused_in_one_line(model: Any, bits: int, message: str) -> None:
    with pytest.raises(BadOptionError, match=message) as refusal:
        ModelCache(tiny(model) if isinstance(model, str) else model, kv_bits=bits)
    assert "\n" not in str(refusal.value)
