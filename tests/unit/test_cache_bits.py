"""Quantized caches: what they are given, and what is refused in one line."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache, QuantizedKVCache
from tinymodels import tiny

from macspec.cache import ModelCache
from macspec.errors import BadOptionError


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
        ("llama", 8, "head size that 32 divides, and this model's is 8"),
        ("gemma3_text", 8, "plain key-value cache, and this model has RotatingKVCache"),
        ("llama4", 4, "plain key-value cache, and this model has ChunkedKVCache"),
        ("mamba", 4, "plain key-value cache, and this model has ArraysCache"),
        ("qwen3_next", 4, "plain key-value cache, and this model has ArraysCache"),
        (Reader(), 8, "attention cannot read a quantized cache"),
    ],
)
def test_refused_in_one_line(model: Any, bits: int, message: str) -> None:
    with pytest.raises(BadOptionError, match=message) as refusal:
        ModelCache(tiny(model) if isinstance(model, str) else model, kv_bits=bits)
    assert "\n" not in str(refusal.value)
