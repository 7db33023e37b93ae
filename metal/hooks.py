"""The places in a stock model where a kernel can take over, for the duration of one pass.

Quantized layers are replaced by wrappers that share their arrays, and the name
``scaled_dot_product_attention`` is rebound in the modules that the model's layers come from. Both
ask the handler of their own thread, and without one do what MLX does: other models and sessions are
not affected. After the last pass everything is as mlx-lm made it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.quantized import QuantizedEmbedding, QuantizedLinear
from mlx_lm.models import base

from macspec.standin import Place, bindings, shared

from .verify_attention import PLAIN, Packing

STOCK: Any = base.scaled_dot_product_attention
QUANTIZED = (QuantizedLinear, QuantizedEmbedding)


class Handler(Protocol):
    """What a pass does at the places; None leaves a place to MLX."""

    def matmul(self, layer: Module, x: mx.array) -> mx.array | None:
        """``x`` [..., K] times the layer's matrix, without its bias."""
        ...

    def attention(
        self,
        queries: mx.array,
        keys: Any,
        values: Any,
        scale: float,
        mask: Any,
        sinks: Any,
        packing: Packing,
    ) -> mx.array | None:
        """As mlx-lm's function; ``packing``: of the cache that keys and values are in."""
        ...


class _Thread(threading.local):
    handler: Handler | None = None


_thread = _Thread()


class QuantizedLayer:
    """A quantized layer during a pass."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self._multiplies = isinstance(layer, QuantizedLinear)
        self._bias = layer.get("bias")

    def __call__(self, x: mx.array) -> Any:
        handler = _thread.handler
        if handler is None or not self._multiplies:
            return self.layer(x)
        y = handler.matmul(self.layer, x)
        if y is None:
            return self.layer(x)
        return y if self._bias is None else y + self._bias

    def as_linear(self, x: mx.array) -> Any:
        handler = _thread.handler
        y = None if handler is None else handler.matmul(self.layer, x)
        return self.layer.as_linear(x) if y is None else y

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layer, name)


def _attention(stock: Any) -> Any:
    @functools.wraps(stock)
    def attention(
        queries: Any,
        keys: Any,
        values: Any,
        cache: Any,
        scale: float,
        mask: Any,
        sinks: Any = None,
    ) -> Any:
        handler = _thread.handler
        out = None
        if handler is not None:
            bits = getattr(cache, "bits", 0)
            packing = Packing(bits, cache.group_size) if bits else PLAIN
            out = handler.attention(queries, keys, values, scale, mask, sinks, packing)
        if out is not None:
            return out
        return stock(queries, keys, values, cache=cache, scale=scale, mask=mask, sinks=sinks)

    return attention


class Hooks:
    """The places of one model of mlx-lm."""

    def __init__(self, module: Module) -> None:
        layers = list(_quantized_layers(module))
        self.layers: list[Module] = [layer for _, layer in layers]
        self._places: list[tuple[Place, Callable[[Any], Any]]] = [
            *((place, QuantizedLayer) for place, _ in layers),
            *((place, _attention) for place in bindings(module, STOCK)),
        ]

    @contextmanager
    def handled(self, handler: Handler) -> Iterator[None]:
        """Let the handler see what this thread computes with the model inside."""
        with shared(self._places):
            before = _thread.handler
            try:
                _thread.handler = handler
                yield
            finally:
                # First: without a handler, hooks that an interrupt leaves in place do nothing.
                _thread.handler = before


def _quantized_layers(node: Any) -> Iterator[tuple[Place, Module]]:
    """Where every layer below ``node`` is that the kernels know, and the layer."""
    for key, child in enumerate(node) if isinstance(node, list) else node.items():
        stock = child.layer if isinstance(child, QuantizedLayer) else child
        if type(stock) in QUANTIZED:
            yield (node, key), stock
        elif isinstance(child, dict | list):
            yield from _quantized_layers(child)
