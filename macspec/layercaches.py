"""The caches of a model's layers: mlx-lm's own, or in their place such as can be rolled back or are
quantized."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten
from mlx_lm.models.cache import (
    CacheList,
    ChunkedKVCache,
    ConcatenateKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    make_prompt_cache,
)

from .errors import BadOptionError
from .windowed import ChunkedWindowKVCache, WindowedKVCache

KV_BITS = (2, 4, 8)
"""Bits of a quantized cache: those that pack whole into 32, as mlx-lm's storage assumes."""


def layer_caches(module: Module, slack: int, bits: int | None) -> list[Any]:
    """Caches for every layer; quantized ones are tried on passes that are never evaluated.

    Args:
        slack: positions that windowed and chunked layers keep beyond their window.
        bits: of keys and values in layers that keep every position; None: as they are.

    Raises:
        BadOptionError: ``bits`` is not possible with this model.
    """

    def fresh() -> list[Any]:
        return [_replacement(layer, slack) for layer in make_prompt_cache(module)]

    if bits is None:
        return fresh()
    if bits not in KV_BITS:
        raise BadOptionError(f"kv-bits must be 2, 4 or 8, not {bits}")
    plain = fresh()
    module(mx.zeros((1, 1), mx.int32), cache=plain)
    groups = [_group(leaf) for leaf in leaves(plain)]
    if not any(groups):
        raise BadOptionError(f"{_unquantizable(plain)}; leave kv-bits out")
    for rows in (1, 2):
        try:
            trial = _quantized(fresh(), iter(groups), bits)
            module(mx.zeros((1, rows), mx.int32), cache=trial)
        except Exception as error:
            raise BadOptionError(
                "this model's attention cannot read a quantized cache; leave kv-bits out"
            ) from error
    return _quantized(fresh(), iter(groups), bits)


def _replacement(layer: Any, slack: int) -> Any:
    """The cache to use for mlx-lm's ``layer``: itself, or one that can be rolled back."""
    kind = type(layer)
    if kind is RotatingKVCache and layer.keep == 0:
        return WindowedKVCache(layer.max_size, slack)
    if kind is ChunkedKVCache:
        return ChunkedWindowKVCache(layer.chunk_size, slack)
    if kind is ConcatenateKVCache:
        # Its trim moves only the offset, which the next update then reads off the longer arrays.
        plain: type[Any] = KVCache
        return plain()
    if kind is CacheList:
        return kind(*(_replacement(child, slack) for child in layer.caches))
    return layer


def leaves(layers: Iterable[Any]) -> Iterator[Any]:
    """The caches that hold something: lists of caches are taken apart."""
    for layer in layers:
        if type(layer) is CacheList:
            yield from leaves(layer.caches)
        else:
            yield layer


def _quantized(layers: Iterable[Any], groups: Iterator[int | None], bits: int) -> list[Any]:
    """The layers, with quantized caches for those leaves that have a group size."""
    found: list[Any] = []
    for layer in layers:
        if type(layer) is CacheList:
            found.append(type(layer)(*_quantized(layer.caches, groups, bits)))
        elif group := next(groups):
            found.append(QuantizedKVCache(group_size=group, bits=bits))
        else:
            found.append(layer)
    return found


def _group(cache: Any) -> int | None:
    """The group size that quantizes a cache that has been used; None: it stays as it is."""
    widths = _widths([cache])
    return group_size(*widths) if widths else None


def _widths(leaves: Iterable[Any]) -> set[int]:
    """Of the keys and values in plain caches that have been used."""
    arrays: Any = tree_flatten([vars(leaf) for leaf in leaves if type(leaf) is KVCache])
    return {value.shape[-1] for _, value in arrays if isinstance(value, mx.array)}


def group_size(*widths: int) -> int | None:
    """The group size that quantizes heads of these widths."""
    return next((group for group in (64, 32) if not any(it % group for it in widths)), None)


def _unquantizable(layers: list[Any]) -> str:
    if widths := _widths(leaves(layers)):
        sizes = " and ".join(map(str, sorted(widths)))
        return f"kv-bits needs a head size that 32 divides, and this model's is {sizes}"
    kinds = ", ".join(sorted({type(leaf).__name__ for leaf in leaves(layers)}))
    return f"kv-bits quantizes layers that keep every position, and this model has only {kinds}"
