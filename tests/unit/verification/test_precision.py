"""The rules in float32 on the device against float64, fed with the same noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import pytest
from exact import Array, block_reference, normalised

from macspec.noise import ACCEPT, RESIDUAL, TARGET, Noise
from macspec.sampling import Sampling
from macspec.verification import Block, Keyed, Match, Rule, block

NEAR = 1e-5
PIPELINES = (
    Sampling(temperature=1.0),
    Sampling(temperature=0.5),
    Sampling(temperature=0.8, top_p=0.9),
    Sampling(temperature=1.3, top_k=20, min_p=0.02),
)


@dataclass(frozen=True)
class Case:
    """A pass as the loop makes it, from random logits."""

    scores: mx.array
    log_q: mx.array
    drafted: mx.array
    noise: Noise


def cases(rule: Rule, count: int) -> Iterator[Case]:
    rng = np.random.default_rng(len(rule.name))
    for number in range(count):
        depth = 1 + number % 8
        width = int(rng.choice([5, 40, 300, 300, 2500]))
        sampling = PIPELINES[number // 8 % len(PIPELINES)]
        likeness = rng.choice([0.1, 0.5, 1.5])
        logits = rng.normal(scale=rng.choice([1, 3]), size=(depth + 1, width))
        draft = logits[:-1] + rng.normal(scale=likeness, size=(depth, width))
        noise = Noise(
            seed=int(rng.integers(2**63)),
            draw=int(rng.integers(500)),
            position=int(rng.integers(30_000)),
            rows=depth + 1,
            width=width,
        )
        scores = sampling.scores(mx.array(logits, mx.float32))
        log_q = sampling.scores(mx.array(draft, mx.float32))
        shared = rule.draft_noise(noise)
        drawn = log_q if shared is None else log_q + shared()[:depth]
        yield Case(scores, log_q, mx.argmax(drawn, axis=-1), noise)


def wide(array: mx.array) -> Array:
    return np.array(array).astype(np.float64)


@dataclass(frozen=True)
class Reference:
    """The outcome in float64, and how far it is from another one."""

    accepted: int
    token: int
    margin: float


def best(scores: Array) -> tuple[int, float]:
    """The best token and its lead."""
    second, first = np.argsort(scores)[-2:]
    return int(first), float(scores[first] - scores[second])


def by_match(case: Case) -> Reference:
    drafted = np.array(case.drafted).tolist()
    drawn = [best(row) for row in wide(case.scores) + wide(case.noise.gumbel(TARGET))]
    accepted = next((i for i, x in enumerate(drafted) if drawn[i][0] != x), len(drafted))
    return Reference(accepted, drawn[accepted][0], min(lead for _, lead in drawn[: accepted + 1]))


def by_block(case: Case) -> Reference:
    drafted = np.array(case.drafted).tolist()
    p, q = np.exp(wide(case.scores)), np.exp(wide(case.log_q))
    h, weights = block_reference(p, q, drafted)
    u = wide(case.noise.uniform(ACCEPT))[: len(drafted)]
    accepted = max((i + 1 for i in range(len(drafted)) if u[i] <= h[i]), default=0)
    with np.errstate(divide="ignore"):
        following = np.log(normalised(weights[accepted], p[accepted]))
    token, lead = best(following + wide(case.noise.gumbel_row(RESIDUAL)))
    return Reference(accepted, token, min(lead, np.abs(u - h).min()))


RULES = {"block": (Block(), by_block), "match": (Match(), by_match), "keyed": (Keyed(), by_match)}


def compare(name: str, count: int) -> None:
    rule, reference = RULES[name]
    forks, depths = 0, Counter[tuple[int, int]]()
    for case in cases(rule, count):
        verdict = rule.accept(case.scores, case.drafted, case.log_q, case.noise)
        expected = reference(case)
        depths[len(case.log_q), expected.accepted] += 1
        if (verdict.accepted.item(), verdict.token.item()) != (expected.accepted, expected.token):
            assert expected.margin < NEAR
            forks += 1
    assert forks <= count / 1000
    assert {(1, 0), (1, 1), (4, 0), (4, 2), (4, 4), (8, 3)} <= set(depths)


@pytest.mark.parametrize("name", RULES)
def test_verdicts_equal_float64(name: str) -> None:
    compare(name, 600)


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_verdicts_equal_float64_many_times(name: str) -> None:
    compare(name, 5_000)


def test_block_quantities_equal_float64() -> None:
    for case in cases(Block(), 200):
        p, q = np.exp(wide(case.scores)), np.exp(wide(case.log_q))
        h, weights = block_reference(p, q, np.array(case.drafted).tolist())
        mine = block.judge(mx.exp(case.scores), mx.exp(case.log_q), case.drafted)
        # h is a quotient of small differences where p is close to q.
        assert np.abs(wide(mine[0]) - h).max() < 10 * NEAR
        assert np.abs(wide(mine[1]) - weights).max() < NEAR


@pytest.mark.parametrize("depth", [1, 3, 32])
def test_a_drafted_token_that_the_target_excludes_ends_the_chain(depth: int) -> None:
    scores = mx.zeros((depth + 1, 8)) - mx.log(mx.array(8.0))
    allowed = mx.where(mx.arange(8) == 5, -mx.inf, 0) - mx.log(mx.array(7.0))
    for bad in range(depth):
        rows = mx.where(mx.arange(depth + 1)[:, None] == bad, allowed[None], scores)
        drafted = mx.where(mx.arange(depth) == bad, 5, 2).astype(mx.uint32)
        for draw in range(8):
            noise = Noise(9, draw, position=0, rows=depth + 1, width=8)
            verdict = Block().accept(rows, drafted, scores[:-1], noise)
            assert verdict.accepted.item() <= bad
            assert verdict.token.item() != 5 or verdict.accepted.item() < bad
