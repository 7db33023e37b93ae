"""What a product's call costs the host while it builds a graph, beside MLX's own call.

``python tests/perf/hostcost.py``, on any machine that does nothing else. Nothing is computed: MLX
builds calls of Metal kernels without Metal, too, inside ``mx.export_function``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import mlx.core as mx
from mlx import nn

from macspec.metal.dispatch import MetalKernels
from macspec.metal.matmul import QMM, QMT, QMV, STRICT, by_mlx
from macspec.metal.outcomes import Outcome
from macspec.metal.variants import Variant, matrix_of

CALLS, REPEATS = 500, 61
"""Calls that are timed together; how often, in turn with the others."""
PLACES = (
    # Kernel, rows, inputs and outputs; few outputs are split along the inputs and added up.
    (QMV.name, 4, 2048, 8192),
    (STRICT, 4, 2048, 8192),
    (QMM.name, 8, 2048, 8192),
    (QMM.name, 8, 8192, 1024),
    (QMT.name, 8, 8192, 1024),
)
Call = Callable[[mx.array], Any]


class Costs(NamedTuple):
    """Median microseconds of a call."""

    ours: float
    """As the hook of a layer makes it."""
    mlx: float
    """``mx.quantized_matmul``."""
    hooked: float
    """The layer's call in a pass with macspec's kernels, hook included."""
    stock: float
    """The layer's call without them."""


def measured(calls: tuple[Call, ...], x: mx.array) -> tuple[float, ...]:
    """Median microseconds of one call of each, built in turn."""
    found: list[list[float]] = [[] for _ in calls]

    def build(x: mx.array) -> mx.array:
        for repeat in range(REPEATS + 1):
            for call, spent in zip(calls, found, strict=True):
                begin = time.perf_counter()
                kept = [call(x) for _ in range(CALLS)]
                seconds = time.perf_counter() - begin
                assert kept[0] is not None, "left to MLX"
                kept.clear()
                if repeat:  # the first warms up
                    spent.append(seconds / CALLS * 1e6)
        return x + 0

    mx.export_function(lambda _: None, build, x)
    return tuple(map(statistics.median, found))


def costs() -> Iterator[tuple[Variant, Costs]]:
    """Of each place."""
    for kernel, rows, inputs, outputs in PLACES:
        layer = nn.QuantizedLinear(inputs, outputs, bias=False)
        layer.set_dtype(mx.bfloat16)
        x, matrix = mx.zeros((1, rows, inputs), mx.bfloat16), matrix_of(layer)
        variant, module = Variant(kernel, matrix.shape(x.dtype), rows), nn.Sequential(layer)
        outcomes = {variant: Outcome(None, 1.0, 2.0, 2.0)}
        kernels = MetalKernels(module, outcomes, strict=kernel == STRICT)
        with kernels.passing(rows):
            calls: tuple[Call, ...] = (
                lambda x, to=kernels, of=layer: to.matmul(of, x),
                lambda x, by=matrix: by_mlx(x, by),
                module.layers[0],
                layer,
            )
            yield variant, Costs(*measured(calls, x))


if __name__ == "__main__":
    print("µs of a call   ours    MLX   over | layer: ours    MLX   over")
    for variant, it in costs():
        print(
            f"{'':12} {it.ours:6.2f} {it.mlx:6.2f} {it.ours - it.mlx:6.2f} |      "
            f"{it.hooked:6.2f} {it.stock:6.2f} {it.hooked - it.stock:6.2f}  {variant}"
        )
