"""The checks of the kernels that choose tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import mlx.core as mx

from macspec.noise import Noise
from macspec.verification import rule_named

from . import accept, walks
from .comparison import Check, behind, distance, normal
from .recorded import (
    SEED,
    choice_key,
    drafts,
    markov_sums,
    recorded,
    recorded_sampling,
    selections,
    verdicts,
)
from .variants import ACCEPT, CHOICES, Choice, Variant
from .walks import Walk

ACCEPT_TEXTS = (2, 4, 8, 9)
"""Rows of a pass between which an input reaches 8 elements, and with that another address space."""

TABLE = 4096
"""Rows of the codebooks that a walk is checked with; it reads few of them."""

PASSES = 4
"""Random passes on which choices must be equal to the reference's."""


def choice_check(variant: Variant, shape: Choice) -> Check:
    accepts = variant.kernel == ACCEPT
    drafted, choose = _choosing(variant, shape)

    def call(x: mx.array, ours: bool) -> mx.array:
        for result in choose(x, 0, ours):
            x = behind(result, x)
        return x

    def failure() -> str | None:
        run: Any = accept.accept if accepts else accept.draft_sample
        found: Any = (verdicts if accepts else drafts)(
            run, shape.rule, shape.truncated, shape.dtype
        )
        stored = recorded()["accept" if accepts else "draft_sample"]
        if found != stored[choice_key(shape.rule, shape.truncated)]:
            return "its choices are not the recorded ones"
        for rows in {variant.rows, *(ACCEPT_TEXTS if accepts else ())}:
            tokens, choosing = _choosing(replace(variant, rows=rows), shape)
            for number in range(PASSES):
                ours, right = (
                    [it.item() for it in choosing(tokens, number, own)] for own in (1, 0)
                )
                if ours != right:
                    return "its choices are not the reference's"
        return None

    return Check(drafted, lambda x: call(x, True), lambda x: call(x, False), failure)


def _choosing(
    variant: Variant, shape: Choice
) -> tuple[mx.array, Callable[[mx.array, int, int], tuple[mx.array, ...]]]:
    """Drafted tokens, and how the kernel (or the reference) chooses after them in a pass."""
    accepts, block = variant.kernel == ACCEPT, shape.rule == "block"
    sampling = recorded_sampling(shape.rule, shape.truncated)
    rule = rule_named("block" if block else "keyed")
    logits = normal((variant.rows, shape.width), shape.dtype) * 3
    likely = logits[: max(variant.rows - 1, 1)].astype(mx.float32)
    log_q = None
    if block and accepts:
        likely = log_q = sampling.scores(likely * 0.9)
    drafted = mx.argmax(likely, axis=-1).astype(mx.uint32)

    def verdict(x: mx.array, number: int, ours: int) -> tuple[mx.array, ...]:
        noise = noise_of(number)
        if ours:
            found = accept.accept(sampling, logits, x, log_q, noise)
        else:
            found = rule.accept(sampling.scores(logits), x, log_q, noise)
        return found.accepted, found.token

    def draw(x: mx.array, number: int, ours: int) -> tuple[mx.array, ...]:
        noise, rows = noise_of(number), behind(x, logits)
        if ours:
            return accept.draft_sample(sampling, rows, noise, 0, keeps_q=block)[:1]
        scores = sampling.scores(rows)
        if noise is not None:
            drawn = rule.draft_noise(noise)
            assert drawn is not None
            scores = scores + drawn()[:1]
        return (mx.argmax(scores, axis=-1),)

    def noise_of(number: int) -> Noise | None:
        if shape.rule == "greedy":
            return None
        # A draft step's pass has a row for the bonus token, too.
        return Noise(SEED, number, 10 * number, variant.rows + (not accepts), shape.width)

    return drafted, verdict if accepts else draw


def selector_check(rows: int, shape: Walk) -> Check:
    tables = tuple(normal((TABLE, shape.rank), shape.dtype, seed) for seed in (1, 2))

    def parts_of(rows: int) -> tuple[mx.array, ...]:
        projected = normal((rows, shape.rank), shape.dtype, 3) / shape.rank**0.5
        ids = mx.argsort(normal((rows, TABLE), mx.float32), axis=-1)[:, : shape.choices]
        return projected, ids.astype(mx.uint32), normal((rows, shape.choices), mx.float32, 4) * 2

    sampling, parts = recorded_sampling("block", True), parts_of(rows)
    noise = Noise(SEED, 1, 10, rows, TABLE)

    def call(run: Callable[..., Any]) -> Callable[[mx.array], mx.array]:
        return lambda x: behind(run(sampling, tables, parts, x, noise, keeps_q=True)[0][-1:], x)

    def failure() -> str | None:
        for rule, truncated in CHOICES:
            found = selections(walks.select, rule, truncated, shape.dtype)
            if found != recorded()["selector_walk"][choice_key(rule, truncated)]:
                return "its choices are not the recorded ones"
        # One row has fewer than 8 elements of some inputs.
        for count, (rule, truncated) in product((1, rows), CHOICES):
            how, own = recorded_sampling(rule, truncated), None if rule == "greedy" else noise
            given = how, tables, parts_of(count), mx.array([3], mx.uint32), own
            (tokens, log_q), right = (
                run(*given, keeps_q=rule == "block") for run in (walks.select, walks.reference)
            )
            if not mx.array_equal(tokens, right[0]):
                return "its choices are not the reference's"
            if rule == "block" and (why := distance(mx.exp(log_q), mx.exp(right[1]))):
                return why
        return None

    return Check(mx.array([3], mx.uint32), call(walks.select), call(walks.reference), failure)


def markov_check(rows: int, shape: Walk) -> Check:
    """Of one row: a block's are launched one after the other."""
    sizes = max(TABLE, shape.choices), shape.choices
    tables = tuple(_drawn((it, shape.rank), shape.dtype, seed) for seed, it in enumerate(sizes))
    logits = _drawn((1, shape.choices), mx.float32, 3) * 3
    places = None
    if shape.choices < shape.width:
        known = mx.arange(shape.width)
        places = mx.where(known < shape.choices, known, shape.choices)
    width = shape.width

    def call(run: Callable[..., Any]) -> Callable[[mx.array], mx.array]:
        return lambda x: behind(run(tables, logits, x, places, width)[0, :1], x)

    def failure() -> str | None:
        if markov_sums(walks.markov_row, shape.dtype) != recorded()["markov_row"]["sums"]:
            return "its bits are not the recorded ones"
        given = tables, logits, mx.array([3], mx.uint32), places, width
        found, right = (run(*given) for run in (walks.markov_row, walks.markov_reference))
        if not mx.array_equal(found > -mx.inf, right > -mx.inf):
            return "it guesses other ids"
        some = right > -mx.inf
        return distance(mx.where(some, found, 0), mx.where(some, right, 0))

    return Check(
        mx.array([3], mx.uint32), call(walks.markov_row), call(walks.markov_reference), failure
    )


def _drawn(shape: tuple[int, ...], dtype: mx.Dtype, seed: int) -> mx.array:
    """Normal variates of the device, for what is large."""
    return mx.random.normal(shape, key=mx.random.key(seed)).astype(dtype)
