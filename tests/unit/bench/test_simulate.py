"""The controller on published costs: close to the oracle, never slower than plain."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from itertools import accumulate

import pytest

from macspec.bench.simulate import (
    DRAFT_STEP,
    GAP,
    Played,
    Player,
    PublishedCurve,
    Setting,
    best_for_all,
    fixed,
    fresh,
    published,
    simulate,
    sweep,
    total,
)
from macspec.bench.traces import NOTHING, Guess, Recorded, Trace, hopeless, shipped
from macspec.control.cost import READING

CURVES = published()
NAMES = [curve.name for curve in CURVES]


QUICK = ("m4-pro-4bit", "m3-ultra-bf16")
"""Curves on which everything is played by default."""


@pytest.mark.parametrize(
    "curve",
    [pytest.param(it, marks=[] if it.name in QUICK else pytest.mark.slow) for it in CURVES],
    ids=NAMES,
)
def test_auto_is_close_to_the_oracle_and_beats_the_best_single_setting(
    curve: PublishedCurve,
) -> None:
    every = list(simulate(curve, shipped()))
    for result in every:
        for played in (result.cold, result.warm):
            assert result.regret(played) <= 0.03, result.trace.name
    setting, plain = best_for_all(every), Setting(None, 0)
    auto = sum(1 / result.warm.speed for result in every)
    assert auto < sum(1 / it.fixed.get(setting, it.fixed[plain]).speed for it in every)


@pytest.mark.parametrize("curve", CURVES, ids=NAMES)
def test_a_random_drafter_costs_next_to_nothing(curve: PublishedCurve) -> None:
    whole, late = [], []
    for seed in range(7):
        (reply,) = hopeless(seed, replies=1).replies
        rounds = list(Player(curve, fresh(), seed).rounds(reply))
        ends = list(accumulate(it.tokens for it in rounds))
        after = bisect_left([0, *ends], 64)
        whole.append(total(rounds).speed)
        late.append(total(rounds[after:]).speed)
    assert statistics.median(whole) >= 0.95
    assert statistics.median(late) >= 0.97
    assert min(late) >= 0.95


def test_the_clock_of_a_fixed_setting() -> None:
    curve = PublishedCurve("", "", "", "", "", {1: 1.0, 2: 1.5, 3: 1.75, 5: 3.0})
    reply = Recorded(10, 5, [True, False, True, True, True], {})
    trace = Trace("", "synthetic", "", [reply])
    assert fixed(trace, curve, Setting(None, 0)) == Played(5, 5.0)
    # The prompt is behind; then T F | T T T.
    then = 1.75 + DRAFT_STEP * 2 + GAP
    first = then + DRAFT_STEP * READING * 9
    played = fixed(trace, curve, Setting("draft", 2))
    assert played.tokens == 5
    assert played.cost == pytest.approx(first + then)


def test_a_lookup_drafts_only_where_it_has_something_to_say() -> None:
    curve = PublishedCurve("", "", "", "", "", {1: 1.0, 2: 1.5})
    guesses = [NOTHING, NOTHING, Guess(8, 3, 1), NOTHING]
    trace = Trace("", "synthetic", "", [Recorded(1, 4, None, {"ngram": guesses})])
    # The first round waits for the host, and so does the one that drafts.
    played = fixed(trace, curve, Setting("ngram", 1))
    assert played == Played(4, pytest.approx(1 + 1 + 1.5 + 2 * GAP))
    assert set(sweep(trace, curve)) == {Setting(None, 0), Setting("ngram", 1)}


def test_costs_between_points_are_straight_lines_and_nothing_is_claimed_beyond_them() -> None:
    (curve,) = (curve for curve in CURVES if curve.name == "m5-max-4bit")
    assert curve.cost(1) == 1
    assert curve.cost(4) == pytest.approx((curve.points[3] + curve.points[5]) / 2)
    assert curve.room(32) == curve.most - 1


def test_every_curve_says_whose_it_is() -> None:
    assert all(curve.whose and curve.where.startswith("https://") for curve in CURVES)
    assert all(curve.points[1] == 1 for curve in CURVES)
