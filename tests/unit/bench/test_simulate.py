"""The controller on published costs: close to the oracle, never slower than plain."""

from __future__ import annotations

import random
import statistics
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

import pytest

from macspec.bench.published import DRAFT_STEP, PublishedCurve, published
from macspec.bench.simulate import (
    GAP,
    Played,
    Player,
    Setting,
    best_for_all,
    fixed,
    fresh,
    simulate,
    sweep,
    texts,
    total,
)
from macspec.bench.traces import NOTHING, Guess, Recorded, Trace, accepting, hopeless, runs, shipped
from macspec.choices import BLOCKS

EVERY = published()
CURVES = [curve for curve in EVERY if not curve.model]
NAMES = [curve.name for curve in CURVES]


QUICK = "m4-pro-4bit"
"""The curve on which everything is played by default."""

each_curve = pytest.mark.parametrize(
    "curve",
    [pytest.param(it, marks=[] if it.name == QUICK else pytest.mark.slow) for it in CURVES],
    ids=NAMES,
)


each_seed = pytest.mark.parametrize(
    "seed", [0, *(pytest.param(it, marks=pytest.mark.slow) for it in (1, 2))]
)


@each_curve
@each_seed
def test_auto_is_close_to_the_oracle_and_beats_the_best_single_setting(
    curve: PublishedCurve, seed: int
) -> None:
    every = list(simulate(curve, [it for it in shipped() if len(it.models) < 2], seed))
    for result in every:
        assert result.regret(result.cold) <= 0.03, result.trace.name
        assert result.regret(result.warm) <= 0.02, result.trace.name
    setting, plain = best_for_all(every), Setting(None, 0)
    auto = sum(1 / result.warm.speed for result in every)
    assert auto < sum(1 / it.fixed.get(setting, it.fixed[plain]).speed for it in every)


@each_curve
@each_seed
def test_of_two_models_the_better_one_is_found(curve: PublishedCurve, seed: int) -> None:
    for result in simulate(curve, [it for it in shipped() if len(it.models) > 1], seed):
        assert result.regret(result.cold) <= 0.03, result.trace.name
        assert result.regret(result.warm) <= 0.02, result.trace.name


@pytest.mark.parametrize("name", ["m4-pro-4bit", "m5-max-4bit"])
def test_the_slower_of_two_models_is_left_when_it_was_the_only_one_at_first(name: str) -> None:
    (curve,) = (it for it in CURVES if it.name == name)
    chance, replies = random.Random(7), []
    for _ in range(20):
        models = {
            drafter: runs([chance.random() < share for _ in range(48)])
            for drafter, share in (("draft", 0.6), ("eagle", 0.8))
        }
        replies.append(Recorded(40, 48, models, {}))
    trace = Trace("", "synthetic", "", replies)
    player = Player(curve, fresh(curve, trace.models))
    alone = trace.alone("draft")
    player.play(alone)
    auto = player.play(trace).speed
    slower, best = (max(it.speed for it in sweep(text, curve).values()) for text in (alone, trace))
    assert auto >= 0.97 * best > 1.1 * slower


@pytest.mark.parametrize("curve", CURVES, ids=NAMES)
def test_a_random_drafter_costs_next_to_nothing(curve: PublishedCurve) -> None:
    whole, late = [], []
    for seed in range(7):
        (reply,) = hopeless(seed, replies=1).replies
        rounds = list(Player(curve, fresh(curve, ["draft"]), seed).rounds(reply))
        ends = list(accumulate(it.tokens for it in rounds))
        after = bisect_left([0, *ends], 64)
        whole.append(total(rounds).speed)
        late.append(total(rounds[after:]).speed)
    assert statistics.median(whole) >= 0.95
    assert statistics.median(late) >= 0.97
    assert min(late) >= 0.95


def test_the_clock_of_a_fixed_setting() -> None:
    curve = PublishedCurve("", "", "", "", "", {1: 1.0, 2: 1.5, 3: 1.75, 5: 3.0})
    reply = Recorded(10, 5, {"draft": runs([True, False, True, True, True])}, {})
    trace = Trace("", "synthetic", "", [reply])
    assert fixed(trace, curve, Setting(None, 0)) == Played(5, 5.0)
    # Both have read the prompt; then T F | T T T.
    each = 1.75 + DRAFT_STEP * 2 + GAP
    played = fixed(trace, curve, Setting("draft", 2))
    assert played.tokens == 5
    assert played.cost == pytest.approx(2 * each)


def test_a_lookup_drafts_only_where_it_has_something_to_say() -> None:
    curve = PublishedCurve("", "", "", "", "", {1: 1.0, 2: 1.5})
    guesses = [NOTHING, NOTHING, Guess(8, 3, 1), NOTHING]
    trace = Trace("", "synthetic", "", [Recorded(1, 4, {}, {"ngram": guesses})])
    # The first round waits for the host, and so does the one that drafts.
    played = fixed(trace, curve, Setting("ngram", 1))
    assert played == Played(4, pytest.approx(1 + 1 + 1.5 + 2 * GAP))
    assert set(sweep(trace, curve)) == {Setting(None, 0), Setting("ngram", 1)}


def test_costs_between_points_are_straight_lines_and_nothing_is_claimed_beyond_them() -> None:
    (curve,) = (curve for curve in CURVES if curve.name == "m5-max-4bit")
    assert curve.cost(1) == 1
    assert curve.cost(4) == pytest.approx((curve.points[3] + curve.points[5]) / 2)
    assert curve.room(32) == curve.most - 1


WITH_HEADS = [
    (curve, name)
    for curve in EVERY
    for name in BLOCKS
    if curve.name in {"m4-pro-12b-8bit", "m4-pro-27b-8bit", "m4-pro-27b-4bit"}
    and name in curve.drafters
]


@pytest.mark.parametrize(
    ("curve", "drafter"),
    [WITH_HEADS[0], *(pytest.param(*it, marks=pytest.mark.slow) for it in WITH_HEADS[1:])],
    ids=lambda it: it if isinstance(it, str) else it.name,
)
@pytest.mark.parametrize("seed", [2, 3])
def test_auto_is_close_to_the_best_width_of_a_block_with_published_acceptance(
    curve: PublishedCurve, drafter: str, seed: int
) -> None:
    (trace,) = (it for it in texts(curve, seed) if it.models == [drafter])
    (result,) = simulate(curve, [trace])
    assert result.regret(result.warm) <= 0.02
    assert result.regret(result.cold) <= 0.03
    assert result.report is not None
    assert result.predicted == pytest.approx(result.report.factor, rel=0.25)


def rounds(runs: Sequence[int], depth: int) -> Iterator[int]:
    """Tokens of each round that drafts so many."""
    at = 0
    while at < len(runs):
        yield min(runs[at], depth) + 1
        at += min(runs[at], depth) + 1


def test_texts_are_guessed_as_well_as_published() -> None:
    trace = accepting("dspark", 7, [3.0, 6.0], replies=40)
    found = [
        [tokens for it in trace.replies[kind::2] for tokens in rounds(it.models["dspark"], 7)]
        for kind in range(2)
    ]
    assert list(map(statistics.mean, found)) == pytest.approx([3.0, 6.0], rel=0.05)


def test_a_block_is_drafted_in_one_pass() -> None:
    curve = next(it for it in EVERY if {"mtp", "dspark"} <= it.drafters.keys())
    more = {name: curve.round(name, 3) - curve.cost(4) for name in ("mtp", "dspark", "ngram")}
    assert more["mtp"] == pytest.approx(3 * curve.step("mtp"))
    assert more["dspark"] == pytest.approx(curve.step("dspark"))
    assert more["ngram"] == 0


def test_every_figure_says_whose_it_is() -> None:
    drafters = {name: it for curve in EVERY for name, it in curve.drafters.items()}
    factors = [it for curve in EVERY for it in curve.factors.values()]
    for it in [*EVERY, *drafters.values()]:
        assert it.whose
        assert it.what
    for it in [*EVERY, *drafters.values(), *factors]:
        assert it.where.startswith("https://")
    assert all(curve.points[1] == 1 for curve in EVERY)
    assert all(curve.factors.keys() <= curve.drafters.keys() for curve in EVERY)
    machines = {curve.machine.split(",")[0] for curve in EVERY if curve.model}
    assert machines == {"M4 Pro", "M4 Max", "M5 Max", "M3 Ultra"}
