"""What the rules promise beyond exactness, and how often each keeps a draft."""

from __future__ import annotations

from itertools import product

import mlx.core as mx
import numpy as np
import pytest
from exact import Array, emitted, judged, match, token_rejection
from families import KINDS, family

from macspec.choices import RULES
from macspec.errors import BadOptionError
from macspec.noise import DRAFT, TARGET, Noise
from macspec.verification import Block, Keyed, Match, block, rule_named

BLOCK = judged(block.judge)


def test_rules_are_found_by_name() -> None:
    assert sorted(RULES) == ["block", "keyed", "match"]
    assert all(rule_named(name).name == name for name in RULES)
    with pytest.raises(BadOptionError, match="unknown rule 'fast'; choose from block, keyed"):
        rule_named("fast")


def test_block_keeps_more_than_token_rejection_and_that_more_than_match() -> None:
    rng = np.random.default_rng(1)
    models = [family("near", 3, rng) for _ in range(20)]
    best, middle, least = (
        sum(emitted(family, rule).tokens_per_pass for family in models)
        for rule in (BLOCK, token_rejection, match)
    )
    assert best > 1.02 * middle > 1.04 * least


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_tokens_stand_as_their_joint_odds_allow(kind: str) -> None:
    """P(t >= i | x_1..x_i) = b_i, over the later tokens of the draft."""
    rng = np.random.default_rng(2)
    for _ in range(10):
        models = family(kind, 2, rng)
        for first in range(models.size):
            p1, q1 = models.p[0][first], models.q[0][first]
            if q1 == 0:
                continue
            stands = 0.0
            for second in range(models.size):
                p, q = models.rows((first, second))
                if q[1, second] > 0:
                    kept = sum(o.chance for o in BLOCK(p, q, (first, second)) if o.kept >= 1)
                    stands += q[1, second] * kept
            assert stands == pytest.approx(min(1, p1 / q1), abs=1e-12)


@pytest.mark.parametrize("depth", [1, 2])
def test_on_a_point_mass_block_is_match(depth: int) -> None:
    rng = np.random.default_rng(3)
    for _ in range(8):
        models = family("point_mass_draft", depth, rng)
        for chain in product(range(models.size), repeat=depth):
            p, q = models.rows(chain)
            if all(q[i, x] == 1 for i, x in enumerate(chain)):
                kept = [0.0] * (depth + 1)
                for outcome in match(p, q, chain):
                    kept[outcome.kept] += outcome.chance
                mine = {outcome.kept: outcome.chance for outcome in BLOCK(p, q, chain)}
                assert [mine[i] for i in range(depth + 1)] == pytest.approx(kept, abs=1e-12)


def agreement(p: Array, q: Array) -> float:
    """The chance that two Gumbel draws with the same noise agree."""
    with np.errstate(divide="ignore"):
        odds = np.maximum(p[None] / p[:, None], q[None] / q[:, None])
    return float(np.sum(1 / odds.sum(axis=1)))


def test_keyed_agrees_between_its_bounds() -> None:
    rng = np.random.default_rng(4)
    for _ in range(500):
        p, q = rng.dirichlet(np.full(6, 0.8), 2)
        distance = np.abs(p - q).sum() / 2
        assert (1 - distance) / (1 + distance) - 1e-12 < agreement(p, q) < 1 - distance + 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_keyed_drafts_stand_as_often_as_the_shared_noise_allows(seed: int) -> None:
    rows, width = 20_000, 6
    p, q = np.random.default_rng(seed).dirichlet(np.full(width, 0.8), 2)
    noise = Noise(seed, draw=0, position=0, rows=rows, width=width)
    rule = Keyed()
    shared = rule.draft_noise(noise)
    assert shared is not None
    drafted = mx.argmax(mx.log(mx.array(q, mx.float32)) + shared(), axis=-1)
    scores = mx.log(mx.array(p, mx.float32))[None]
    # Each row a pass of its own: how often is the first token kept?
    drawn = mx.argmax(scores + noise.gumbel(TARGET), axis=-1)
    stand = np.mean(np.array(drawn) == np.array(drafted))
    expected = agreement(p, q)
    assert abs(stand - expected) < 4 * np.sqrt(expected * (1 - expected) / rows)


def test_which_noise_a_drafter_draws_with() -> None:
    noise = Noise(7, draw=3, position=5, rows=2, width=50)
    assert Match().draft_noise(noise) is None
    keyed, block = Keyed().draft_noise(noise), Block().draft_noise(noise)
    assert keyed is not None
    assert block is not None
    assert mx.array_equal(keyed(), noise.gumbel(TARGET))
    assert mx.array_equal(block(), noise.gumbel(DRAFT)[:-1])
    assert not mx.array_equal(noise.gumbel(DRAFT), noise.gumbel(TARGET))
    assert (Block.keeps_q, Keyed.keeps_q, Match.keeps_q) == (True, False, False)


@pytest.mark.parametrize("name", RULES)
def test_without_noise_every_rule_takes_the_most_likely_tokens(name: str) -> None:
    scores = mx.array(np.random.default_rng(6).normal(size=(4, 9)), mx.float32)
    best = mx.argmax(scores, axis=-1)
    wrong = (best + 1) % 9
    for kept in range(4):
        drafted = mx.concatenate([best[:kept], wrong[kept:3]])
        verdict = rule_named(name).accept(scores, drafted, None, None)
        assert (verdict.accepted.item(), verdict.token.item()) == (kept, best[kept].item())


@pytest.mark.parametrize("name", RULES)
def test_plain_decoding_is_the_same_draw_under_every_rule(name: str) -> None:
    rng = np.random.default_rng(8)
    for position in range(20):
        scores = mx.array(rng.normal(size=(1, 30)), mx.float32)
        noise = Noise(1, draw=position % 3, position=position, rows=1, width=30)
        verdict = rule_named(name).accept(scores, mx.array([], mx.uint32), None, noise)
        drawn = mx.argmax(scores[0] + Noise(1, 0, position, 1, 30).gumbel(TARGET)[0])
        assert (verdict.accepted.item(), verdict.token.item()) == (0, drawn.item())


def test_a_residual_of_zeros_draws_from_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding can leave p below q everywhere: then the correction comes from p."""

    class Late(Noise):
        def uniform(self, stream: int) -> mx.array:
            return mx.full((self.rows,), 1 - 2.0**-24)

    judged = block.judge
    monkeypatch.setattr(block, "judge", lambda p, q, drafted: judged(p, q * (1 + 1e-5), drafted))
    p = mx.array([[0.2, 0.3, 0.5], [1.0, 0, 0]])
    tokens = []
    for draw in range(40):
        noise = Late(3, draw, position=0, rows=2, width=3)
        verdict = Block().accept(mx.log(p), mx.array([2], mx.uint32), mx.log(p[:1]), noise)
        assert verdict.accepted.item() == 0
        tokens.append(verdict.token.item())
    assert set(tokens) == {0, 1, 2}


def test_where_b_is_1_the_chain_stands_however_little_the_next_rows_differ() -> None:
    q = np.full((2, 64), 1 / 64, np.float32)
    p = np.concatenate([q, q[:1]])
    p[1, :12] *= 1 + 1e-6  # a residual of one and a half units in the last place of 1
    h, _ = block.judge(mx.array(p), mx.array(q), mx.array([0, 0], mx.uint32))
    assert h[0].item() == 1
