"""How rows are taken back from a model's stateful layers, found out by trying."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import mlx.core as mx

from ..cache import ModelCache
from ..pending import PendingRows, Recurrence
from ..recurrent import RECORDED, REPLAYED, Recorder

TRIED, TRIED_PENDING = "_tried_recorder", "_tried_pending_rows"
"""The attributes of a model that hold the outcomes."""

_PREFIX = (11, 3, 29, 17)
_ROWS = (13, 41, 7, 37, 23)
_NEXT = (19,)
"""What a model is tried with."""


def untried(module: Any) -> ModelCache:
    """A model's cache that goes back as it should, as far as that shows without the weights."""
    cache = ModelCache(module)
    if cache.stateful:
        with suppress(Exception):  # as in ``_tried``
            return ModelCache(module, recorder=Recorder(module))
    return cache


def recorder_of(module: Any, vocabulary: int) -> Recorder | None:
    """What records the passes of a model with stateful layers, so that rows can be taken back.

    Tried on 5 rows, once for each model: after a rollback to each length the logits of the next
    token must be those of a model that never saw the rows that were taken back.

    Returns:
        None where no layer is stateful, or where no way passed.
    """
    if not ModelCache(module).stateful:
        return None
    known: dict[str, Any] = vars(module)
    if TRIED not in known:
        known[TRIED] = _tried(module, vocabulary)
    recorder: Recorder | None = known[TRIED]
    return recorder


def pending_rows_of(
    module: Any, vocabulary: int, recorder: Recorder | None, recurrences: Sequence[Recurrence]
) -> PendingRows | None:
    """What keeps rows pending until it is known which stay, by these kernels; tried as a recorder.

    Returns:
        None where not all states are left by kernels and convolutions, or where the trial failed.
    """
    if recorder is None:
        return None
    known: dict[str, Any] = vars(module)
    asked = tuple(recurrences)
    if known.get(TRIED_PENDING, ((None,), None))[0] != asked:
        known[TRIED_PENDING] = asked, _tried_pending(module, vocabulary, recorder, asked)
    found: PendingRows | None = known[TRIED_PENDING][1]
    return found


def _tried_pending(
    module: Any, vocabulary: int, recorder: Recorder, recurrences: Sequence[Recurrence]
) -> PendingRows | None:
    try:
        found = PendingRows(module, recorder.mixers, recurrences)
        cache = ModelCache(module, recorder=recorder, pending_rows=found)
        cache.mark(len(_ROWS))
        with cache.recording(len(_ROWS)):
            # Not evaluated: it only shows whether all states are accounted for.
            module(mx.zeros((1, len(_ROWS)), mx.int32), cache=cache.layers)
        taken = found.takes(len(_ROWS))
        return found if taken and _like_replay(module, vocabulary, recorder, found) else None
    except Exception:  # as in ``_tried``
        return None


def _like_replay(
    module: Any, vocabulary: int, recorder: Recorder, pending_rows: PendingRows
) -> bool:
    """Whether states and logits after a rollback are those after a replay."""

    def after(kept: int, pending_rows: PendingRows | None) -> list[mx.array]:
        cache = ModelCache(module, recorder=recorder, pending_rows=pending_rows)
        _fed(module, vocabulary, cache, _PREFIX)
        _fed(module, vocabulary, cache, _ROWS)
        cache.rollback(len(_PREFIX) + kept)
        cache.fold()
        return [*cache.states, _fed(module, vocabulary, cache, _NEXT)]

    nearer = _nearer(module)
    for kept in (0, 3):
        right, next_right = (after(rows, None) for rows in (kept, kept + 1))
        for ours, replayed, other in zip(after(kept, pending_rows), right, next_right, strict=True):
            error = distance(ours, replayed)
            if error and not error * nearer < distance(replayed, other):
                return False
    return True


def _tried(module: Any, vocabulary: int) -> Recorder | None:
    for how in (RECORDED, REPLAYED):
        try:
            recorder = Recorder(module, how)
            if _passes(module, vocabulary, recorder):
                return recorder
        except Exception:  # mlx-lm's models fail in their own ways when called out of turn
            continue
    return None


def _passes(module: Any, vocabulary: int, recorder: Recorder) -> bool:
    def fed(cache: ModelCache, tokens: Sequence[int]) -> mx.array:
        return _fed(module, vocabulary, cache, tokens)

    def straight(kept: int) -> mx.array:
        cache = ModelCache(module)
        fed(cache, _PREFIX)
        if kept:
            fed(cache, _ROWS[:kept])
        return fed(cache, _NEXT)

    expected = [straight(kept) for kept in range(len(_ROWS) + 1)]
    nearer = _nearer(module)
    cache = ModelCache(module, recorder=recorder)
    for kept in range(len(_ROWS)):
        cache.reset()
        fed(cache, _PREFIX)
        fed(cache, _ROWS)
        cache.rollback(len(_PREFIX) + kept)
        answer = fed(cache, _NEXT)
        error = distance(answer, expected[kept])
        if error and not error * nearer < distance(answer, expected[kept + 1]):
            return False
    return True


def _fed(module: Any, vocabulary: int, cache: ModelCache, tokens: Sequence[int]) -> mx.array:
    """The logits after a pass of these tokens."""
    cache.mark(len(tokens))
    ids = mx.array([[token % vocabulary for token in tokens]], mx.uint32)
    with cache.recording(len(tokens)):
        logits: mx.array = module(ids, cache=cache.layers)[0, -1]
    cache.advance(len(tokens))
    return logits


def _nearer(module: Any) -> int:
    """How many times nearer an answer must be to the right one than to that for a row more."""
    return 100 if module(mx.zeros((1, 1), mx.int32)).dtype == mx.float32 else 4


def distance(a: mx.array, b: mx.array) -> float:
    """Root mean square of the difference."""
    difference = a.astype(mx.float32) - b.astype(mx.float32)
    root: Any = mx.sqrt(mx.mean(mx.square(difference))).item()
    return float(root)
