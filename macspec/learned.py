"""What a session knows about its machine and its pair: measured when idle, and kept on disk."""

from __future__ import annotations

import hashlib
import itertools
import json
import platform
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx

from .config.paths import cache_folder, data_folder
from .control import PLAIN, ControlState, Plan, alike
from .decode import Decoder
from .drafters import ChainDrafter, Corpus, Proposal, Stepper, Trial
from .drafters.corpus import vocabulary_key
from .kernels import Kernels
from .models import Pair
from .models.cached import CachedModel
from .noise import Noise


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
    if pair.target.spread is not None:
        made_for["machines"] = pair.target.spread.key
    folder = folder or cache_folder() / "costs"
    return ControlState(folder / f"{name}.json", made_for)


def corpus(pair: Pair, folder: Path | None = None) -> Corpus:
    """The user's past replies in the pair's vocabulary."""
    table = {index: text for text, index in pair.target.tokenizer.get_vocab().items()}
    return Corpus.open(folder or data_folder() / "corpus", vocabulary_key(table, pair.vocabulary))


REPEATS = 5
"""Passes of which the median is the cost of a draft step."""

AT_ONCE = 256
"""Tokens read at once when reading is measured."""

STUDIED = 96
"""Newest tokens of a reply that a drafter studies."""

BLOCK = 6
"""Tokens drafted at once when the drafter that does so is measured."""

SERIES = 3
"""Rounds of one kind in a row, of which the median counts."""

PIPELINED = 4
"""Plain rounds in a row that are timed together."""

LONGEST = 3.0
"""Seconds that are measured in one idle moment; the rest is left for the next one."""

TEXT = "The old harbour was quiet in the morning, and only two of the boats had come back by then."
"""Read by the models of a new session, so that rounds can be timed before the first prompt."""

TEXT_TOKENS = 24
"""Of that text: too few for a head to be judged by them."""


def measure(decoder: Decoder, longest: float = LONGEST) -> Iterator[None]:
    """Time rounds as the decoding loop runs them, and leave everything else as it was.

    Each step takes one round of drafting, or a few plain ones. Drafted rounds are compared with
    the plain ones before and after them, if these took alike. Kinds of few samples and little
    depth come first.

    Args:
        longest: seconds after which the rest is left for another time.
    """
    until, fresh = decoder.clock() + longest, not decoder.tokens
    if decoder.target.cache.reason is not None or decoder.settings.method == "off":
        return
    if fresh:
        decoder.tokens = list(decoder.pair.target.tokenizer.encode(TEXT))[:TEXT_TOKENS]
    text = decoder.tokens
    try:
        for _ in _measured(decoder, until) if len(text) > 1 else ():
            decoder.kernels.in_use.clear()  # a step waits for what it launches
            yield
    finally:
        if fresh and decoder.tokens is text:
            decoder.rollback(0)
            decoder.tokens = []


def _measured(decoder: Decoder, until: float) -> Iterator[None]:
    curve, text, length = decoder.controller.curve, decoder.tokens, len(decoder.tokens)
    room = decoder.pair.context - length
    _take_back(decoder)
    while decoder.target.length < length - 1:
        decoder.target.read_next(text)
        yield
    if decoder.trees is None and decoder.settings.trees:
        decoder.try_trees()
        yield
    for drafter in decoder.portfolio.models("auto"):
        yield from _study(decoder, drafter)
    steppers = [it.stepper for it in decoder.portfolio.models("auto")]
    steppers = [it for it in steppers if it.room(text) > 1]
    for stepper in steppers:
        while stepper.length < length - 1 and stepper.unread(text) > 1:
            stepper.read_next(text)
            yield
        if stepper.ready(text) and stepper.name not in curve.reading:
            _measure_parts(decoder, stepper)
            yield
    rooms = {it.name: it.room(text) for it in steppers if it.ready(text)}
    curve.sampled = not decoder.settings.sampling.greedy
    before = 0.0
    while decoder.clock() < until:
        missing = [it for it in curve.missing(length, [*rooms]) if it[1] <= rooms.get(it[0], room)]
        if not missing:
            return
        if not before:
            before = rehearse_plain(decoder)
            curve.set_plain(length, before)
            yield
        name, depth = missing[0]
        seconds = []
        for _ in range(SERIES):
            seconds.append(rehearse(decoder, name, depth))
            yield
        after = rehearse_plain(decoder)
        curve.set_plain(length, after)
        if alike(before, after):
            cost = statistics.median(seconds) / statistics.mean([before, after])
            curve.learn(name, depth, length, cost)
        before = after
        yield


def _study(decoder: Decoder, drafter: ChainDrafter) -> Iterator[None]:
    """Learn how a drafter would have fared with what it did not draft of the newest reply."""
    model, text, sampling = drafter.stepper, decoder.tokens, decoder.settings.sampling
    if sampling.penalised or not decoder.prompted:
        return
    begin = max(model.length + 2, decoder.prompted, len(text) - STUDIED)
    if decoder.settings.acceptance_rule.keeps_q and not sampling.greedy:
        gaps = (at for at in range(begin, len(text)) if at not in decoder.undrafted)
        begin = max(gaps, default=begin - 1) + 1
    if begin >= len(text) or not model.room(text):
        return
    while model.length < begin - 1:
        model.read_next(text[:begin])
        yield
    rounds = []
    for it in drafter.study(text, begin, partial(_likely, decoder)):
        rounds.append(it)
        yield
    decoder.controller.study(model.name, rounds, len(text))


def _likely(decoder: Decoder, logits: mx.array, at: int) -> float:
    """How likely the token at a place of the newest reply would have been accepted, had it been
    drafted by these logits [1, V]: under the rules that compare draws, which are known, 0 or 1."""
    sampling, rule = decoder.settings.sampling, decoder.settings.acceptance_rule
    token, scores = decoder.tokens[at], sampling.weights(logits)[0]
    if sampling.greedy or not rule.keeps_q:
        noise = None
        if not sampling.greedy:
            noise = rule.draft_noise(Noise(decoder.seed, 0, at, 1, decoder.pair.vocabulary))
        best: Any = mx.argmax(scores if noise is None else scores + noise()[0]).item()
        return float(best == token)
    # Of the drafts of a token that the target draws with p, the share min(p, q) / p is kept.
    target = sampling.weights(decoder.undrafted[at])[0]
    p, q = (mx.softmax(it)[token] for it in (target, scores))
    found: Any = (q / p).item()
    return min(float(found), 1.0)


def _measure_parts(decoder: Decoder, stepper: Stepper) -> None:
    """The pass of a drafter's model, and reading a token into it, in plain passes."""
    curve, text, target = decoder.controller.curve, decoder.tokens, decoder.target
    depth = min(stepper.room(text), BLOCK)
    trial = _block(stepper, text, depth) if stepper.at_once else _step(stepper, text)
    plain, step = timed([_pass(target, 1, text), trial], decoder.clock)
    stepper.rollback(len(text) - 1)
    rows = min(AT_ONCE, stepper.room(text) - 1)
    (read,) = timed([stepper.reading(last(text, rows))], decoder.clock)
    curve.set_parts(stepper.name, step / plain, read / rows / plain)


def rehearse(decoder: Decoder, drafter: str, depth: int) -> float:
    """Seconds that the device works on a round, which is taken back; ``GIVEN`` tokens cost nothing
    to draft."""
    given = None if drafter else Proposal(mx.array(last(decoder.tokens, depth), mx.uint32))
    plan = Plan(drafter or None, depth)
    flight = decoder.dispatched(plan, given=given)
    flight.wait()
    ended = decoder.clock()
    _take_back(decoder)
    return ended - flight.began


def rehearse_plain(decoder: Decoder) -> float:
    """Seconds of a plain round that is launched behind another one, taken back."""
    flight, ended = decoder.dispatched(PLAIN), []
    for _ in range(PIPELINED + 1):
        _take_back(decoder)
        behind, flight = flight, decoder.dispatched(PLAIN, behind=flight)
        behind.wait()
        ended.append(decoder.clock())
    flight.wait()
    _take_back(decoder)
    return (ended[-1] - ended[0]) / PIPELINED


def _take_back(decoder: Decoder) -> None:
    length = len(decoder.tokens) - 1
    decoder.target.rollback(length)
    for drafter in decoder.portfolio.models("auto"):
        drafter.rollback(length)


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
