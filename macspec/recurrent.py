"""Rows taken back from layers that keep a running state.

Gated delta nets, Mamba, short convolutions and their like fold each row into a state of fixed size,
from which no row can be removed. So a pass of several rows records, for each module that was given
such a state (a mixer), its arguments and the output of its projections; the states from before the
pass are kept by reference. To keep the first m rows, the old states are put back and the mixers are
called again on m rows, with the recorded output of their projections: what runs again is the
recurrence, and no weight matrix is read. After a pass of one row the old references are enough.
"""

from __future__ import annotations

import copy
import inspect
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.convolution import Conv1d
from mlx.nn.layers.distributed import (
    AllToShardedLinear,
    QuantizedAllToShardedLinear,
    QuantizedShardedToAllLinear,
    ShardedToAllLinear,
)
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedLinear
from mlx_lm.models.cache import ArraysCache, CacheList, make_prompt_cache

from .standin import Place, StandIn, places, replaced

PROJECTIONS = (
    Linear,
    QuantizedLinear,
    Conv1d,
    AllToShardedLinear,
    QuantizedAllToShardedLinear,
    ShardedToAllLinear,
    QuantizedShardedToAllLinear,
)
"""Layers of which the first rows of the output are the output for the first rows."""

RECORDED, REPLAYED = "recorded", "replayed"


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a mixer."""

    module: Any
    args: tuple[Any, ...]
    named: dict[str, Any]
    projections: Sequence[Place]
    outputs: list[deque[mx.array]]
    """What each of the projections returned, in order."""


@dataclass(slots=True)
class Tape:
    """What the mixers of one pass consumed."""

    rows: int
    calls: list[_Call] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes of the recorded outputs."""
        return sum(it.nbytes for call in self.calls for own in call.outputs for it in own)

    def replay(self, kept: int) -> None:
        """Bring the states, which are those from before the pass, to its first ``kept`` rows."""
        for call in self.calls:
            outputs = [deque(own) for own in call.outputs]

            def again(layer: Any, at: int, outputs: Any = outputs) -> Any:
                def project(x: mx.array) -> Any:
                    return outputs[at].popleft()[:, :kept] if outputs[at] else layer(x)

                return StandIn(layer, project)

            with replaced(call.projections, again):
                args = [self._cut(it, kept) for it in call.args]
                named = {name: self._cut(it, kept) for name, it in call.named.items()}
                call.module(*args, **named)

    def _cut(self, value: Any, kept: int) -> Any:
        """An argument for the first rows, without what only attention beside the state needs."""
        if isinstance(value, CacheList):
            own = (it if isinstance(it, ArraysCache) else copy.deepcopy(it) for it in value.caches)
            return CacheList(*own)  # type: ignore[no-untyped-call]
        if not isinstance(value, mx.array) or value.ndim < 2:
            return value
        if value.shape[:2] == (1, self.rows):
            return value[:, :kept]
        return None if value.dtype == mx.bool_ else value


class Recorder:
    """Records passes of one model, whose modules are as mlx-lm made them in between.

    Args:
        how: ``RECORDED``: the projections' output is kept; ``REPLAYED``: they run again when rows
            are taken back.
    """

    def __init__(self, module: Module, how: str = RECORDED) -> None:
        self.how = how
        takers = list(places(module, _takes_cache))
        innermost: dict[int, Any] = {}
        outer: list[int] = []

        def found(mixer: Any, at: int) -> Any:
            def called(*args: Any, **named: Any) -> Any:
                if not any(map(_stateful, (*args, *named.values()))):
                    return mixer(*args, **named)
                for other in outer:
                    innermost.pop(other, None)
                innermost[at] = mixer
                outer.append(at)
                try:
                    return mixer(*args, **named)
                finally:
                    outer.pop()

            return StandIn(mixer, called)

        with replaced(takers, found):
            module(mx.zeros((1, 1), mx.int32), cache=make_prompt_cache(module))
        self._mixers = [
            (takers[at], list(places(mixer, _is_projection)) if how == RECORDED else [])
            for at, mixer in innermost.items()
        ]

    @property
    def mixers(self) -> list[Place]:
        """Where the mixers are."""
        return [place for place, _ in self._mixers]

    @contextmanager
    def recording(self, rows: int) -> Iterator[Tape]:
        """Record the pass that is built inside."""
        tape = Tape(rows)

        def recorded(mixer: Any, at: int) -> Any:
            projections = self._mixers[at][1]

            def called(*args: Any, **named: Any) -> Any:
                call = _Call(mixer, args, named, projections, [deque() for _ in projections])
                tape.calls.append(call)

                def heard(layer: Any, number: int) -> Any:
                    def project(x: mx.array) -> Any:
                        y = layer(x)
                        if y.shape[:2] == (1, rows):
                            call.outputs[number].append(y)
                        return y

                    return StandIn(layer, project)

                with replaced(projections, heard):
                    return mixer(*args, **named)

            return StandIn(mixer, called)

        with replaced(self.mixers, recorded):
            yield tape


def _takes_cache(module: Module) -> bool:
    return "cache" in inspect.signature(type(module).__call__).parameters


def _is_projection(module: Module) -> bool:
    return isinstance(module, PROJECTIONS)


def _stateful(value: Any) -> bool:
    caches = value.caches if isinstance(value, CacheList) else [value]
    return any(isinstance(it, ArraysCache) for it in caches)
