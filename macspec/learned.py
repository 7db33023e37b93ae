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
from .drafters import Corpus, Stepper, Trial
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
    it = pair.head
    head = [] if it is None else [[it.name, it.kind, it.parameters, it.weight_bytes]]
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

BLOCK = 6
"""Tokens drafted at once when the drafter that does so is measured."""


def measure(decoder: Decoder) -> Iterator[None]:
    """Measure one missing or doubtful cost at each step, and leave everything else as it was."""
    curve, length, target = decoder.controller.curve, len(decoder.tokens), decoder.target
    if length == 0 or target.cache.reason is not None:
        return
    decoder.rollback(length - 1)  # a reply that was interrupted leaves more
    _read_all(target, decoder.tokens)
    most = decoder.pair.context - length
    text, clock = decoder.tokens, decoder.clock
    while fitting := [rows for rows in curve.missing(length) if rows <= most]:
        plain, wide = timed([_pass(target, 1, text), _pass(target, fitting[0], text)], clock)
        curve.set_pass(fitting[0], length, wide / plain)
        yield
    if decoder.trees is None and decoder.settings.trees:
        decoder.try_trees()
        yield
    for drafter in decoder.portfolio.models("auto"):
        stepper = drafter.stepper
        if stepper.room(text) <= 1 or not stepper.ready(text):
            continue
        _read_all(stepper, text)
        depth = min(stepper.room(text), BLOCK) if stepper.at_once else 1
        trial = _block(stepper, text, depth) if stepper.at_once else _step(stepper, text)
        plain, step = timed([_pass(target, 1, text), trial], clock)
        stepper.rollback(length - 1)
        curve.set_step(stepper.name, step / plain / depth)
        yield
        rows = min(AT_ONCE, stepper.room(text) - 1)
        if rows > 1:
            (read,) = timed([stepper.reading(last(text, rows))], clock)
            curve.set_reading(stepper.name, read / rows / plain)
            yield


def _read_all(model: CachedModel | Stepper, text: Sequence[int]) -> None:
    """Read all but the last token."""
    while model.length < len(text) - 1:
        model.read_next(text)


def last(text: Sequence[int], count: int) -> list[int]:
    """The last tokens of a text, again from its end where there are fewer; models with experts read
    fewer weights for equal tokens than for these."""
    repeated = itertools.cycle(reversed(text))
    return [*itertools.islice(repeated, count)][::-1]


def _pass(model: CachedModel, rows: int, text: Sequence[int]) -> Trial:
    tokens, length = mx.array(last(text, rows), mx.uint32), model.length
    return lambda: [mx.argmax(model.logits(tokens, rows), axis=-1)], lambda: model.rollback(length)


def _step(stepper: Stepper, text: Sequence[int]) -> Trial:
    """A step that is not the first one after a text."""
    mx.eval(stepper.first(text, 2, mx.async_eval))
    token, length = mx.array(list(text[-1:]), mx.uint32), len(text)
    return (
        lambda: [mx.argmax(stepper.next(token, mx.async_eval), axis=-1)],
        lambda: stepper.rollback(length),
    )


def _block(stepper: Stepper, text: Sequence[int], depth: int) -> Trial:
    """All tokens of a round at once."""
    return (
        lambda: [stepper.first(text, depth, mx.async_eval)],
        lambda: stepper.rollback(len(text)),
    )


def timed(trials: Sequence[Trial], clock: Callable[[], float]) -> list[float]:
    """Median seconds of each, taken in turn, each taken back."""
    seconds: list[list[float]] = [[] for _ in trials]
    for repeat in range(REPEATS + 1):
        for (build, take_back), taken in zip(trials, seconds, strict=True):
            begin = clock()
            mx.eval(*build())
            if repeat:  # the first only warms up
                taken.append(clock() - begin)
            take_back()
    return [statistics.median(taken) for taken in seconds]
