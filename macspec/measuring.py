"""Measuring what the cost curve lacks, when there is nothing else to do."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

import mlx.core as mx

from .decoding import Decoder
from .drafters import DraftModel
from .models.cached import CachedModel

REPEATS = 5

AT_ONCE = 256
"""Tokens at which reading is measured."""


def measure(decoder: Decoder) -> Iterator[None]:
    """Measure a cost that is missing or doubtful at each step, at the length of what was said.

    Between two steps everything is as it was, so the rest can be left for another time.
    """
    curve, length, target = decoder.controller.curve, len(decoder.tokens), decoder.target
    if length == 0 or target.cache.reason is not None:
        return
    target.unread(decoder.tokens)
    most = decoder.pair.context - length
    while fitting := [rows for rows in curve.missing(length) if rows <= most]:
        plain, wide = timed([(target, 1), (target, fitting[0])], decoder.clock)
        curve.set_pass(fitting[0], length, wide / plain)
        yield
    if decoder.trees is None and decoder.settings.trees:
        decoder.try_trees()
        yield
    draft = decoder.portfolio.drafters.get(DraftModel.name)
    if isinstance(draft, DraftModel) and draft.offer(decoder.tokens).room > 0:
        draft.model.unread(decoder.tokens)
        plain, step = timed([(target, 1), (draft.model, 1)], decoder.clock)
        curve.set_step(DraftModel.name, step / plain)
        yield
        rows = min(AT_ONCE, draft.context - length)
        if rows > 1:
            curve.set_reading(DraftModel.name, reading(draft.model, rows, decoder.clock) / plain)
            yield


def timed(passes: list[tuple[CachedModel, int]], clock: Callable[[], float]) -> list[float]:
    """Median seconds of passes with so many rows each, in turn, each rolled back."""
    seconds: list[list[float]] = [[] for _ in passes]
    for repeat in range(REPEATS + 1):
        for (model, rows), taken in zip(passes, seconds, strict=True):
            length, begin = model.length, clock()
            mx.eval(mx.argmax(model.logits(mx.zeros(rows, mx.uint32), rows), axis=-1))
            if repeat:  # the first only warms up
                taken.append(clock() - begin)
            model.rollback(length)
    return [statistics.median(taken) for taken in seconds]


def reading(model: CachedModel, count: int, clock: Callable[[], float]) -> float:
    """Median seconds that a model takes to read a token, so many at once, and rolls back."""
    seconds = []
    for _ in range(REPEATS):
        length, begin = model.length, clock()
        model.read([0] * count)
        mx.synchronize()
        seconds.append(clock() - begin)
        model.rollback(length)
    return statistics.median(seconds) / count
