"""Hidden rows of a model: what its layers put out, and what enters its output head.

Heads that draft read them. A model of mlx-lm returns logits only, so while a pass is built the
layers asked for, the embedding and the output head have stand-ins that note what goes through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any

import mlx.core as mx
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedEmbedding, QuantizedLinear

from .cache import ModelCache
from .recurrent import Recorder
from .standin import Place, StandIn, places, replaced

FINAL = -1
"""The row that enters the output head, after the final norm."""

KEPT = 2048
"""Newest rows that are kept for a head that has not read them yet."""

_IDS = (3, 1, 4, 1, 5)
"""What a model is tried with: ids that every vocabulary has."""


class Tap:
    """Notes hidden rows of one model's passes; the logits stay as they are, bit for bit.

    Args:
        wanted: which rows: numbers of layers, whose output it is, or ``FINAL``.
        recorder: what else stands in for modules of the model during its passes.
    """

    reason: str | None
    """Why this model does not show its rows, in a sentence for the user; None if it does."""
    embedding: Any
    """The model's embedding: ids [...] to rows [..., width]."""

    def __init__(
        self, module: Any, wanted: Sequence[int], recorder: Recorder | None = None
    ) -> None:
        self.wanted = tuple(wanted)
        self._module = module
        self._layers: list[Place] = []
        self._output: Place | None = None
        try:
            self.reason = self._refusal(recorder)
        except Exception as error:  # mlx-lm's models fail in their own ways when looked into
            self.reason = f"its hidden rows cannot be read ({type(error).__name__})"

    def logits(self, rows: mx.array) -> mx.array:
        """What the output head makes of rows [n, width] that enter it: [n, vocabulary]."""
        assert self._output is not None
        holder, key = self._output
        return _put_out(holder[key], rows)

    def logits_of(self, ids: mx.array) -> Callable[[mx.array], mx.array]:
        """As ``logits``, of some ids [n] of the vocabulary only."""
        assert self._output is not None
        holder, key = self._output
        some = copy(holder[key])
        some.update({name: array[ids] for name, array in some.parameters().items()})
        return partial(_put_out, some)

    @contextmanager
    def listening(self) -> Iterator[dict[int, list[mx.array]]]:
        """Note what was asked for, [1, rows, width] each, of the pass that is built inside."""
        assert self._output is not None
        heard: dict[int, list[mx.array]] = {it: [] for it in self.wanted}
        numbers = [it for it in self.wanted if it != FINAL]

        def noting(module: Any, at: int) -> StandIn:
            if at == len(numbers):
                return _Output(module, heard[FINAL].append)

            def called(*args: Any, **named: Any) -> Any:
                out = module(*args, **named)
                heard[numbers[at]].append(out[0] if isinstance(out, tuple) else out)
                return out

            return StandIn(module, called)

        output = [self._output] if FINAL in heard else []
        with replaced([*self._layers, *output], noting):
            yield heard

    def _refusal(self, recorder: Recorder | None) -> str | None:
        layers = list(self._module.layers)
        for number in self.wanted:
            if number >= len(layers):
                return f"it has {len(layers)} layers, and no layer {number}"
        if len(set(map(id, layers))) < len(layers):
            return "its layers run more than once"
        where = places(self._module, lambda _: True)
        found = {id(holder[key]): (holder, key) for holder, key in where}
        self._layers = [found[id(layers[it])] for it in self.wanted if it != FINAL]

        def run() -> mx.array:
            cache = ModelCache(self._module, recorder=recorder)
            cache.mark()
            with cache.recording(len(_IDS)):
                logits: mx.array = self._module(mx.array([_IDS]), cache=cache.layers)
            return logits

        expected = run()
        self._find_ends(expected.shape[-1])
        if self._output is None:
            return "it has no output head of a known kind"
        with self.listening() as heard:
            logits = run()
        for rows in heard.values():
            if len(rows) != 1 or rows[0].ndim != 3 or rows[0].shape[:2] != (1, len(_IDS)):
                return "its layers do not put out one row for each token"
        if not mx.array_equal(logits, expected, equal_nan=True):
            return "its logits change where its hidden rows are read"
        return None

    def _find_ends(self, width: int) -> None:
        """Find the embedding, and the output head, which is the last to put out ``width``."""
        embeddings: list[Any] = []
        outputs: list[int] = []
        where = list(places(self._module, lambda it: _is_linear(it) or _is_embedding(it)))

        def noting(module: Any, at: int) -> StandIn:
            def noted(x: mx.array) -> None:
                outputs.append(at)

            if _is_embedding(module):
                return _Embedding(module, noted, embeddings.append)
            return _Output(module, noted)

        with replaced(where, noting):
            self._module(mx.array([_IDS[:1]]), cache=ModelCache(self._module).layers)
        weights = ((at, where[at]) for at in reversed(outputs))
        self._output = next(
            (place for at, place in weights if place[0][place[1]].weight.shape[0] == width), None
        )
        self.embedding = embeddings[0] if embeddings else None
        if self.embedding is None:
            self._output = None


class _Output(StandIn):
    """An output head, or an embedding that is one."""

    def __init__(self, module: Any, note: Any) -> None:
        def called(x: mx.array) -> Any:
            if _is_linear(module):
                note(x)
            return module(x)

        super().__init__(module, called)
        self._note = note

    def as_linear(self, x: mx.array) -> Any:
        self._note(x)
        return self.stands_for.as_linear(x)


class _Embedding(_Output):
    def __init__(self, module: Any, note: Any, embeds: Any) -> None:
        super().__init__(module, note)
        self._embeds = embeds

    def __call__(self, x: mx.array) -> Any:
        self._embeds(self.stands_for)
        return self.stands_for(x)


def _put_out(head: Any, rows: mx.array) -> mx.array:
    logits: mx.array = head(rows) if _is_linear(head) else head.as_linear(rows)
    return logits


def _is_linear(module: Any) -> bool:
    kind = getattr(module, "stands_for", module)
    return isinstance(kind, Linear | QuantizedLinear)


def _is_embedding(module: Any) -> bool:
    return isinstance(module, Embedding | QuantizedEmbedding)


class HiddenRows:
    """The newest hidden rows of a text: what a tap noted, as far as it was not taken back.

    Args:
        tap: what notes them.
    """

    def __init__(self, tap: Tap) -> None:
        self.tap = tap
        self._chunks: list[tuple[int, list[mx.array]]] = []
        """Positions, ascending and without gaps, and the rows from there on: for each row asked for
        [1, n, width], as they were noted."""

    @property
    def start(self) -> int:
        """The first position held."""
        return self._chunks[0][0] if self._chunks else 0

    @property
    def stop(self) -> int:
        """One more than the last position held."""
        if not self._chunks:
            return 0
        at, rows = self._chunks[-1]
        return at + rows[0].shape[1]

    @property
    def arrays(self) -> list[mx.array]:
        return [row for _, rows in self._chunks for row in rows]

    @contextmanager
    def noting(self, start: int) -> Iterator[None]:
        """Keep the rows of the pass that is built inside, whose first position is ``start``."""
        with self.tap.listening() as heard:
            yield
        if self.stop != start:  # rows between were not kept, and no head could pass over the gap
            self._chunks = []
        self._chunks.append((start, [heard[it][0] for it in self.tap.wanted]))
        least = self.stop - KEPT
        while self._chunks[0][0] + self._chunks[0][1][0].shape[1] <= least:
            self._chunks.pop(0)

    def rows(self, start: int, stop: int) -> list[mx.array]:
        """The rows of positions ``start`` to ``stop``, [n, width] each."""
        held = [it for it in self._chunks if it[0] < stop and it[0] + it[1][0].shape[1] > start]
        if not held:
            return []
        # Most chunks are single rows: they are joined before the end is cut.
        (first, rows), *more = held
        parts = [[row[:, max(start - first, 0) :] for row in rows], *(rows for _, rows in more)]
        length = stop - max(start, first)
        return [mx.concatenate(list(it), axis=1)[0, :length] for it in zip(*parts, strict=True)]

    def drop(self, before: int) -> None:
        """Forget the rows of positions below ``before``, which were read."""
        self._chunks = [it for it in self._chunks if it[0] + it[1][0].shape[1] > before]

    def rollback(self, length: int) -> None:
        """Only the first ``length`` positions are still valid."""
        while self.stop > length:
            at, rows = self._chunks.pop()
            if at < length:
                self._chunks.append((at, [row[:, : length - at] for row in rows]))

    def compact(self, start: int, path: Sequence[int]) -> None:
        """Of the rows from ``start`` on, keep those of the places in ``path``, ascending."""
        at, rows = self._chunks[-1]
        kept = mx.array([*range(start - at), *(start - at + place for place in path)], mx.int32)
        self._chunks[-1] = at, [row[:, kept] for row in rows]
