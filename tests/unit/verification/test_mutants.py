"""The enumeration rejects rules that are wrong, among them plausible ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from exact import (
    Array,
    Chain,
    Emission,
    Outcome,
    Rule,
    cut,
    draw,
    emitted,
    judged,
    match,
    normalised,
    unsure,
)
from families import SIZE, Family, family

from macspec.verification import block
from macspec.verification import match as match_file

BIASED = 1e-2


def mutated(function: Callable[..., Any], line: str, other: str) -> Callable[..., Any]:
    """The product's function with a piece of its source replaced."""
    source = inspect.getsource(function)
    assert source.count(line) == 1, f"{line!r} is no longer part of {function.__name__}"
    names: dict[str, Any] = dict(vars(inspect.getmodule(function)))
    exec(f"from __future__ import annotations\n{source.replace(line, other)}", names)
    changed: Callable[..., Any] = names[function.__name__]
    return changed


JUDGES = {
    "only the product is capped": (
        "walk - xp.maximum(xp.max(so_far, axis=1), 0)",
        "xp.minimum(walk, 0)",
    ),
    "each ratio stands alone": ("xp.cumsum(ratio, axis=0)", "xp.minimum(ratio, 0)"),
    "ratio upside down": ("ratio = xp.log(", "ratio = -xp.log("),
    "residual without b": ("start[:, None] * p[:-1] - q", "p[:-1] - q"),
    "residual with the next b": ("start[:, None] * p[:-1] - q", "b[:, None] * p[:-1] - q"),
    "residual is not clipped but mirrored": ("xp.maximum(start[:, None] * p[:-1] - q, 0)",
                                             "abs(start[:, None] * p[:-1] - q)"),
    "correction drawn from p": ("xp.maximum(start[:, None] * p[:-1] - q, 0)", "p[:-1] + 0 * q"),
    "bonus drawn from a residual": ("p[-1:]]", "xp.maximum(p[-1:] - q[-1:], 0)]"),
    "h forgets 1 - b": ("r + (1 - b[:-1])", "r + 0 * b[:-1]"),
    "h as if b were 0": ("r + (1 - b[:-1])", "r + 1"),
    "last h is certain": ("[h, b[-1:]]", "[h, xp.ones_like(b[-1:])]"),
    "h of the row before": ("xp.concatenate([h, b[-1:]])", "b"),
}  # fmt: skip


def one_uniform(p: Array, q: Array, chain: Chain) -> Iterator[Outcome]:
    """A single uniform is held against every h."""
    with np.errstate(divide="ignore"):
        h, weights = block.judge(p, q, np.array(chain), xp=np)
    highest = 0.0
    for kept in range(len(chain), 0, -1):
        chance = max(h[kept - 1] - highest, 0)
        yield Outcome(chance, kept, normalised(weights[kept], p[kept]))
        highest += chance
    yield Outcome(1 - highest, 0, normalised(weights[0], p[0]))


def first_refusal(p: Array, q: Array, chain: Chain) -> Iterator[Outcome]:
    """Ends at the first u_i > h_i, as token rejection would."""
    with np.errstate(divide="ignore"):
        h, weights = block.judge(p, q, np.array(chain), xp=np)
    reached = 1.0
    for kept, chance in enumerate([*h, 0.0]):
        yield Outcome(reached * (1 - chance), kept, normalised(weights[kept], p[kept]))
        reached *= chance


def warmer_draft(p: Array, q: Array, chain: Chain) -> Iterator[Outcome]:
    """Judges with the draft's distribution before its temperature."""
    other = q**0.7
    return judged(block.judge)(p, other / other.sum(axis=-1, keepdims=True), chain)


def stale_rows(p: Array, q: Array, chain: Chain) -> Iterator[Outcome]:
    """The target's first row is used for every row, as if it had not seen the drafted prefix."""
    return judged(block.judge)(np.repeat(p[:1], len(p), axis=0), q, chain)


RULES: dict[str, Rule] = {
    **{name: judged(mutated(block.judge, *change)) for name, change in JUDGES.items()},
    "a token is dropped for its own q": cut(unsure, judged(block.judge)),
    "one uniform for all": one_uniform,
    "the first refusal ends it": first_refusal,
    "q is not what was drawn from": warmer_draft,
    "rows without the drafted prefix": stale_rows,
}


def worst(rule: Rule, depth: int = 3) -> float:
    rng = np.random.default_rng(depth)
    return max(emitted(family("near", depth, rng), rule).error for _ in range(12))


@pytest.mark.parametrize("name", RULES)
def test_the_enumeration_rejects_this_block_rule(name: str) -> None:
    assert worst(RULES[name]) > BIASED


def test_the_enumeration_passes_the_product_through_the_same_door() -> None:
    assert worst(judged(mutated(block.judge, "depth = ", "depth = "))) < 1e-12


MATCHES = {
    "a late agreement counts": ("mx.cumprod(agree)", "agree"),
    "bonus in place of the correction": ("mx.take(drawn, accepted)", "drawn[-1]"),
    "disagreement kept": ("drawn[:-1] == drafted", "drawn[:-1] != drafted"),
}


@pytest.mark.parametrize("name", MATCHES)
def test_the_enumeration_rejects_this_match_rule(name: str) -> None:
    changed = mutated(match_file.first_mismatch, *MATCHES[name])

    def rule(p: Array, q: Array, chain: Chain) -> Iterator[Outcome]:
        for drawn in product(range(SIZE), repeat=len(p)):
            verdict = changed(mx.array(drawn, mx.uint32), mx.array(chain, mx.uint32))
            chance = np.prod(p[np.arange(len(p)), drawn])
            yield Outcome(chance, verdict.accepted.item(), np.eye(SIZE)[verdict.token.item()])

    models = family("near", 2, np.random.default_rng(5))
    assert emitted(models, match).error < 1e-12
    assert emitted(models, rule).error > BIASED


def test_the_enumeration_rejects_noise_that_repeats_at_every_position() -> None:
    points = 12
    third = np.full(SIZE, 1 / 3)
    models = Family([np.broadcast_to(third, [SIZE] * (i + 1)) for i in range(2)], [third])
    emission = Emission(models)
    for omega in range(points):
        token = draw(third, omega, points)
        emission.add(1 / points, (token,), np.eye(SIZE)[token])
    assert emission.error > BIASED
