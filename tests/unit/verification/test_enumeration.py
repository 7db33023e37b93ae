"""Every rule gives the target's distribution to 1e-12, whatever the draft is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import mlx.core as mx
import numpy as np
import pytest
from exact import (
    Array,
    Chain,
    Emission,
    Family,
    Policy,
    Rule,
    cut,
    draw,
    emitted,
    judged,
    match,
    token_rejection,
    unsure,
    verdict,
)
from families import KINDS, SIZE, family
from tinymodels import tiny

from macspec.models.cached import CachedModel
from macspec.models.vocabulary import TranslatedModel, Translation
from macspec.sampling import Sampling
from macspec.verification import block

EXACT = 1e-12
DEPTHS = (1, 2, 3)


def families(kind: str, depth: int, count: int) -> Iterator[Family]:
    rng = np.random.default_rng([depth, *kind.encode()])
    return (family(kind, depth, rng) for _ in range(count))


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_block_and_token_rejection_are_exact(kind: str, depth: int) -> None:
    for models in families(kind, depth, 40):
        block_rule = emitted(models, judged(block.judge))
        reference = emitted(models, token_rejection)
        assert block_rule.error < EXACT
        assert reference.error < EXACT
        assert block_rule.tokens_per_pass > reference.tokens_per_pass - EXACT


@pytest.mark.slow
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_block_is_exact_for_many_more(kind: str, depth: int) -> None:
    rng = np.random.default_rng([depth, 1, *kind.encode()])
    for _ in range(1000):
        assert emitted(family(kind, depth, rng), judged(block.judge)).error < EXACT


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_match_is_exact(kind: str, depth: int) -> None:
    for models in families(kind, depth, 12 if depth < 3 else 2):
        assert emitted(models, match).error < EXACT


def coarse(table: Array, points: int, rng: np.random.Generator) -> Array:
    """The table's rows rounded at random to multiples of 1 / points."""
    flat = table.reshape(-1, table.shape[-1])
    return (rng.multinomial(points, flat) / points).reshape(table.shape)


def plain(models: Family, omega: Chain, points: int) -> Chain:
    """What the target alone writes with this noise."""
    chain: Chain = ()
    for table, o in zip(models.p, omega, strict=True):
        chain += (draw(table[chain], o, points),)
    return chain


def keyed(models: Family, omega: Chain, points: int) -> tuple[Chain, int]:
    """A pass whose draft and target draw from the same noise: tokens that stand, next token."""
    chain: Chain = ()
    for table, o in zip(models.q, omega, strict=False):
        chain += (draw(table[chain], o, points),)
    p, _ = models.rows(chain)
    drawn = tuple(draw(row, o, points) for row, o in zip(p, omega, strict=True))
    kept, token = verdict(drawn, chain)
    return chain[:kept], token


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_keyed_is_exact_and_writes_what_plain_decoding_writes(kind: str, depth: int) -> None:
    points = 5 if depth == 3 else 8
    rng = np.random.default_rng([depth, *kind.encode()])
    for models in families(kind, depth, 1 if depth == 3 else 3):
        p, q = ([coarse(table, points, rng) for table in tables] for tables in (models.p, models.q))
        models = Family(p, q)
        emission = Emission(models)
        for omega in product(range(points), repeat=depth + 1):
            head, token = keyed(models, omega, points)
            assert (*head, token) == plain(models, omega, points)[: len(head) + 1]
            emission.add(points ** -(depth + 1), head, np.eye(SIZE)[token])
        assert emission.error < EXACT


def after_unsure(q: Array, chain: Chain) -> int:
    return min(unsure(q, chain) + 1, len(chain))


def uncertain_row(q: Array, chain: Chain) -> int:
    """Drafting ends at a row whose best token is unlikely, before anything is drawn from it."""
    sure = q.max(axis=1) >= 0.5
    return len(chain) if sure.all() else int(np.argmin(sure))


@pytest.mark.parametrize("policy", [after_unsure, uncertain_row])
@pytest.mark.parametrize("rule", [judged(block.judge), token_rejection, match])
def test_a_chain_may_end_early_for_reasons_older_than_its_last_token(
    policy: Policy, rule: Rule
) -> None:
    depths = set()
    for models in families("near", 2, 12):
        emission = emitted(models, cut(policy, rule))
        depths |= {policy(models.rows(c)[1], c) for c in product(range(SIZE), repeat=2)}
        assert emission.error < EXACT
    assert len(depths) > 1


def test_match_may_drop_a_token_for_what_it_is() -> None:
    for models in families("near", 2, 12):
        assert emitted(models, cut(unsure, match)).error < EXACT


def conditionals(model: CachedModel, depth: int) -> list[Array]:
    """A model's distributions after each prefix, as a rule gets them."""
    tables = []
    for length in range(depth):
        rows = []
        for prefix in product(range(SIZE), repeat=length):
            model.rollback(0)
            scores = Sampling(temperature=1.0).scores(
                model.logits(mx.array([1, *prefix], mx.uint32), 1)
            )
            row = np.exp(np.array(scores[0], np.float64))
            rows.append(row / row.sum())
        tables.append(np.array(rows).reshape([SIZE] * (length + 1)))
    return tables


@pytest.mark.parametrize("known", [(True, True, False), (False, True, True), (True, False, False)])
def test_ids_that_the_draft_does_not_know_keep_the_distribution(known: Chain) -> None:
    depth, unknown = 2, [i for i in range(SIZE) if not known[i]]
    stand_in = known.index(True)
    ids = mx.array([i if known[i] else stand_in for i in range(SIZE)], mx.uint32)
    translation = Translation(ids, mx.array(known))
    target = CachedModel(tiny("llama"), SIZE)
    draft = TranslatedModel(tiny("llama-sliding"), translation)
    models = Family(conditionals(target, depth + 1), conditionals(draft, depth))
    assert all((table[..., unknown] == 0).all() for table in models.q)
    assert all((table[..., unknown] > 0).all() for table in models.p)
    # It reads an unknown id as its stand-in, and is a model of its own on the others.
    after = models.q[1]
    assert all(np.array_equal(after[i], after[stand_in]) for i in unknown)
    assert len(np.unique(after, axis=0)) == len(set(ids.tolist()))  # type: ignore[arg-type]
    for rule in (judged(block.judge), token_rejection, match):
        assert emitted(models, rule).error < EXACT
    rng, points = np.random.default_rng(7), 6
    p, q = ([coarse(table, points, rng) for table in tables] for tables in (models.p, models.q))
    models, emission = Family(p, q), Emission(Family(p, q))
    for omega in product(range(points), repeat=depth + 1):
        head, token = keyed(models, omega, points)
        assert (*head, token) == plain(models, omega, points)[: len(head) + 1]
        emission.add(points ** -(depth + 1), head, np.eye(SIZE)[token])
    assert emission.error < EXACT
