"""What a session knows about its machine and its pair: measured when idle, and kept on disk."""

from __future__ import annotations

import hashlib
import itertools
import json
import platform
import statistics
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx

from .config.paths import cache_folder, data_folder
from .control import ControlState
from .decode import Decoder
from .drafters import ChainDrafter, Corpus, DraftModel
from .drafters.corpus import vocabulary_key
from .kernels import Kernels
from .models import Pair
from .models.cached import CachedModel


def control_state(
    pair: Pair,
    kv_bits: int | None = None,
    folder: Path | None = None,
    kernels: str = Kernels.key,
) -> ControlState:
    """The learned costs and acceptance of a pair on this machine, with these ``Kernels.key``."""
    models = [
        [it.config, it.parameters, it.weight_bytes]
        for it in (pair.target, pair.draft)
        if it is not None
    ]
    head = [] if pair.head is None else [[pair.head.kind, pair.head.weight_bytes]]
    text = json.dumps([models, kv_bits, *head], sort_keys=True)
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    made_for = {
        "chip": str(mx.device_info().get("device_name") or platform.machine()),
        "mlx": version("mlx"),
        "mlx-lm": version("mlx-lm"),
        "macspec": version("macspec"),
        "kernels": kernels,
    }
    folder = folder or cache_folder() / "costs"
    return ControlState(folder / f"{name}.json", made_for)


def corpus(pair: Pair, folder: Path | None = None) -> Corpus:
    """The user's past replies in the pair's vocabulary."""
    table = {index: text for text, index in pair.target.tokenizer.get_vocab().items()}
    return Corpus.open(folder or data_folder() / "corpus", vocabulary_key(table, pair.vocabulary))


REPEATS = 5

AT_ONCE = 256
"""Tokens read at once when reading is measured."""


def measure(decoder: Decoder) -> Iterator[None]:
    """Measure one missing or doubtful cost at each step, and leave everything else as it was."""
    curve, length, target = decoder.controller.curve, len(decoder.tokens), decoder.target
    if length == 0 or target.cache.reason is not None:
        return
    target.unread(decoder.tokens)
    most = decoder.pair.context - length
    text, clock = decoder.tokens, decoder.clock
    while fitting := [rows for rows in curve.missing(length) if rows <= most]:
        plain, wide = timed([(target, 1), (target, fitting[0])], text, clock)
        curve.set_pass(fitting[0], length, wide / plain)
        yield
    if decoder.trees is None and decoder.settings.trees:
        decoder.try_trees()
        yield
    drafter = decoder.portfolio.drafters.get(DraftModel.name)
    draft = drafter.stepper if isinstance(drafter, ChainDrafter) else None
    if isinstance(draft, DraftModel) and draft.room(decoder.tokens) > 0:
        draft.model.unread(decoder.tokens)
        plain, step = timed([(target, 1), (draft.model, 1)], text, clock)
        curve.set_step(DraftModel.name, step / plain)
        yield
        rows = min(AT_ONCE, draft.context - length)
        if rows > 1:
            curve.set_reading(
                DraftModel.name, reading(draft.model, last(text, rows), clock) / plain
            )
            yield


def last(text: Sequence[int], count: int) -> list[int]:
    """The last tokens of a text, again from its end where there are fewer; models with experts read
    fewer weights for equal tokens than for these."""
    repeated = itertools.cycle(reversed(text))
    return [*itertools.islice(repeated, count)][::-1]


def timed(
    passes: list[tuple[CachedModel, int]], text: Sequence[int], clock: Callable[[], float]
) -> list[float]:
    """Median seconds of passes over that many last tokens, taken in turn, each rolled back."""
    seconds: list[list[float]] = [[] for _ in passes]
    for repeat in range(REPEATS + 1):
        for (model, rows), taken in zip(passes, seconds, strict=True):
            tokens = mx.array(last(text, rows), mx.uint32)
            length, begin = model.length, clock()
            mx.eval(mx.argmax(model.logits(tokens, rows), axis=-1))
            if repeat:  # the first only warms up
                taken.append(clock() - begin)
            model.rollback(length)
    return [statistics.median(taken) for taken in seconds]


def reading(model: CachedModel, tokens: Sequence[int], clock: Callable[[], float]) -> float:
    """Median seconds per token for reading these at once, rolled back."""
    seconds = []
    for _ in range(REPEATS):
        length, begin = model.length, clock()
        model.read(tokens)
        mx.synchronize()
        seconds.append(clock() - begin)
        model.rollback(length)
    return statistics.median(seconds) / len(tokens)
