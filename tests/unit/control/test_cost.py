"""What a round costs, in plain steps."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macspec.control import CostCurve
from macspec.control.cost import ALONE, EDGES, GIVEN, ROWS, SAMPLES, SHIPPED, candidates

costs = st.floats(0.2, 20)

STEPS = {"draft": 0.1}


def play(curve: CostCurve, drafter: str, depth: int, cost: float, speed: float = 1.0) -> None:
    """Rounds in a row between plain ones, on a machine of some speed."""
    for _ in range(6):
        curve.observe(drafter, depth, 100, cost * speed)
    curve.observe(None, 0, 100, ALONE * speed)


def verify(curve: CostCurve, rows: int, length: int) -> float:
    """A pass of so many rows, that nothing was drafted for by a model."""
    return curve.round(GIVEN if rows > 1 else None, rows - 1, length)


def test_what_leaving_a_pipelined_run_adds_is_measured() -> None:
    curve = CostCurve(STEPS)
    assert curve.leaving(100) == pytest.approx(ALONE - 1)
    curve.set_plain(100, 1.0)
    usual = curve.round("ngram", 1, 100)
    for _ in range(5):
        curve.observe(None, 0, 100, 0.2, overlaps=1)
        curve.observe("ngram", 1, 100, usual + 0.1)
        curve.observe("ngram", 1, 100, 9.0)
        curve.observe(None, 0, 100, 1.9 + 0.2, overlaps=1, waited=0.2)
    assert curve.leaving(100) == pytest.approx(0.4)
    # A run that ended with its reply says nothing.
    curve.observe(None, 0, 100, 0.2, overlaps=1)
    curve.left = []
    for _ in range(20):
        curve.observe("ngram", 1, 100, usual)
        curve.observe(None, 0, 100, 9.0, overlaps=1)
        curve.left = []
    assert curve.leaving(100) == pytest.approx(0.4)


def test_before_anything_is_measured_the_shipped_curve_holds() -> None:
    curve = CostCurve(STEPS)
    assert [verify(curve, rows, 100) for rows in SHIPPED] == list(SHIPPED.values())
    assert verify(curve, 10, 100) == pytest.approx((SHIPPED[8] + SHIPPED[12]) / 2)
    assert verify(curve, 33, 100) > SHIPPED[32]
    assert curve.round("draft", 3, 100) == pytest.approx(SHIPPED[4] + 0.3)
    assert curve.round("ngram", 3, 100) == pytest.approx(SHIPPED[4])
    assert curve.round(None, 0, 100) == 1
    assert CostCurve({"dflash": 0.1}).round("dflash", 7, 100) == pytest.approx(SHIPPED[8] + 0.1)


@given(st.dictionaries(st.sampled_from(ROWS[1:]), costs, min_size=1), st.booleans())
def test_measured_rounds_are_believed_and_wanted_no_more(
    measured: dict[int, float], sampled: bool
) -> None:
    curve = CostCurve(STEPS)
    curve.sampled = sampled
    for rows, cost in measured.items():
        for _ in range(SAMPLES):
            assert (GIVEN, rows - 1) in curve.missing(100, ["draft"])
            curve.learn(GIVEN, rows - 1, 100, cost)
        assert (GIVEN, rows - 1) not in curve.missing(100, ["draft"])
    for rows, cost in measured.items():
        # Other lengths, and other sampling, take over the nearest points.
        for at, other in ((100, sampled), (EDGES[-1] + 1, sampled), (100, not sampled)):
            curve.sampled = other
            assert verify(curve, rows, at) == pytest.approx(cost)


def test_one_slow_measurement_changes_nothing() -> None:
    curve = CostCurve(STEPS)
    for cost in (2.0, 9.0, 2.1):
        curve.learn("draft", 3, 100, cost)
    assert curve.round("draft", 3, 100) == pytest.approx(2.1)


@given(st.floats(0.3, 3), st.floats(0.7, 1.4), st.integers(1, 12))
def test_rounds_correct_the_cost_of_their_kind(unit: float, truth: float, depth: int) -> None:
    curve = CostCurve(STEPS)
    before = curve.round("draft", depth, 100)
    curve.set_plain(100, unit)
    for _ in range(3):
        play(curve, "draft", depth, before * truth, unit)
    assert curve.seconds(100) == pytest.approx(unit)
    assert curve.round("draft", depth, 100) == pytest.approx(before * truth, rel=0.02)


@pytest.mark.parametrize("cost", [1.3, 2.6])
def test_a_measured_cost_gives_way_slowly_to_live_rounds(cost: float) -> None:
    curve = CostCurve(STEPS)
    for _ in range(SAMPLES):
        curve.learn("draft", 2, 100, 1.8)
    curve.set_plain(100, 1.0)
    seen = [1.8]
    for _ in range(60):
        play(curve, "draft", 2, cost)
        seen.append(curve.round("draft", 2, 100))
    assert abs(seen[1] - 1.8) < 0.1 * abs(cost - 1.8) + 0.01
    assert seen[-1] == pytest.approx(cost, rel=0.02)
    assert seen == pytest.approx(sorted(seen, reverse=cost < 1.8))


@pytest.mark.parametrize("shape", ["step", "drift", "bursts"])
def test_what_slows_the_whole_machine_is_no_cost_of_a_round(shape: str) -> None:
    curve, chance, speed = CostCurve(STEPS), random.Random(1), 1.0
    for _ in range(SAMPLES):
        curve.learn("draft", 2, 100, 1.8)
    curve.set_plain(100, 1.0)
    for number in range(200):
        if shape == "step":
            speed = 1.5 if number % 40 > 20 else 1.0
        elif shape == "drift":
            speed *= 1.003
        else:
            speed = 2.0 if chance.random() < 0.2 else 1.0
        play(curve, "draft", 2, 1.8, speed)
    assert curve.round("draft", 2, 100) == pytest.approx(1.8, rel=0.12)


def test_rounds_between_plain_steps_that_differ_say_nothing() -> None:
    curve = CostCurve(STEPS)
    for _ in range(SAMPLES):
        curve.learn("draft", 2, 100, 1.8)
    curve.set_plain(100, 1.0)
    for _ in range(20):
        for _ in range(3):
            curve.observe(None, 0, 100, ALONE)
        for _ in range(6):
            curve.observe("draft", 2, 100, 2 * 1.8)
        curve.observe(None, 0, 100, 2 * ALONE)
    assert curve.round("draft", 2, 100) == pytest.approx(1.8)


def test_one_odd_comparison_of_a_depth_that_was_not_measured_decides_nothing() -> None:
    curve = CostCurve(STEPS)
    for depth, cost in ((3, 1.6), (5, 2.0)):
        for _ in range(SAMPLES):
            curve.learn("draft", depth, 100, cost)
    curve.set_plain(100, 1.0)
    expected = curve.round("draft", 4, 100)
    assert expected == pytest.approx(1.8, rel=0.05)
    play(curve, "draft", 4, 0.9)  # the plain steps on both sides met a burst of load
    assert curve.round("draft", 4, 100) == pytest.approx(expected)
    for _ in range(3):
        play(curve, "draft", 4, 1.5)
    assert curve.round("draft", 4, 100) == pytest.approx(1.5)


def test_the_first_round_after_plain_ones_says_nothing() -> None:
    curve = CostCurve(STEPS)
    for _ in range(SAMPLES):
        curve.learn("draft", 2, 100, 1.8)
    for _ in range(20):
        curve.observe("draft", 2, 100, 2.7)
        curve.observe(None, 0, 100, ALONE)
    assert curve.round("draft", 2, 100) == pytest.approx(1.8)


def test_waiting_for_the_host_is_part_of_every_round_and_counted_once() -> None:
    curve, waited = CostCurve(STEPS), 0.1
    for depth, cost in ((1, 1.5), (2, 1.8)):
        for _ in range(SAMPLES):
            curve.learn("draft", depth, 100, cost)
    curve.set_plain(100, 1.0)
    most = curve.most("draft", 2, 100)
    for _ in range(20):
        for _ in range(6):
            curve.observe("draft", 2, 100, 1.8 + waited, waited=waited)
        curve.observe(None, 0, 100, ALONE + waited, waited=waited)
    assert curve.round("draft", 1, 100) == pytest.approx(1.5 + waited)
    assert curve.round("draft", 2, 100) == pytest.approx(1.8 + waited)
    assert curve.most("draft", 2, 100) == pytest.approx(most + waited)
    assert curve.round(None, 0, 100) == 1
    assert curve.seconds(100) == pytest.approx(1)


def test_a_replay_is_told_from_the_round_that_it_begins() -> None:
    curve = CostCurve(STEPS)
    for _ in range(SAMPLES):
        curve.learn("draft", 2, 100, 1.8)
    curve.set_plain(100, 1.0)
    for number in range(60):
        replayed = number % 3 == 1
        curve.observe("draft", 2, 100, 1.8 + 0.3 * replayed, replayed=replayed)
        if number % 10 == 9:
            curve.observe(None, 0, 100, ALONE)
    assert curve.replay == pytest.approx(0.3, abs=0.02)
    assert curve.round("draft", 2, 100) == pytest.approx(1.8, rel=0.02)


def test_a_branch_costs_one_row_more() -> None:
    curve = CostCurve(STEPS)
    more = curve.round("draft+", 3, 100) - curve.round("draft", 3, 100)
    assert more == pytest.approx(SHIPPED[5] - SHIPPED[4])


def test_reading_what_it_missed_is_no_cost_of_the_round_itself() -> None:
    curve = CostCurve(STEPS)
    assert curve.catching_up("draft", 1) == curve.catching_up("ngram", 900) == 0
    assert curve.catching_up("draft", 9) > curve.catching_up("draft", 4) > 0
    curve.set_parts("draft", STEPS["draft"], 0.02)
    assert curve.catching_up("draft", 11) == pytest.approx(0.2)


def test_only_the_middle_of_a_pipelined_run_is_a_plain_step() -> None:
    curve = CostCurve()
    for _ in range(10):
        curve.observe(None, 0, 100, 0.030, overlaps=1)
        for seconds in (0.028, 0.002, 0.027, 0.003):
            curve.observe(None, 0, 100, seconds, overlaps=2)
        curve.observe(None, 0, 100, 0.001, overlaps=1)
    assert curve.seconds(100) == pytest.approx(0.015)
    for seconds in (0.028, 0.002):  # when the first began is not known, nor if the last is all
        curve.observe(None, 0, 9000, seconds, overlaps=2)
    assert curve.seconds(9000) is None


def test_contexts_that_are_not_alike_are_not_mixed() -> None:
    curve = CostCurve()
    curve.set_plain(4000, 3.0)
    assert curve.seconds(20) is None
    curve.set_plain(20, 1.0)
    assert (curve.seconds(30), curve.seconds(3800)) == (1.0, 3.0)
    again = CostCurve()
    again.restore(curve.as_dict())
    assert again.seconds(30) is None, "earlier plain steps may be of a machine in another state"


@given(st.integers(0, 32))
def test_candidates_fill_measured_passes_and_never_exceed_the_room(room: int) -> None:
    depths = candidates(room)
    assert list(depths) == sorted(set(depths))
    assert all(1 <= depth <= room for depth in depths)
    assert not depths or depths[-1] == room


def test_a_curve_comes_back_from_json() -> None:
    curve = CostCurve(STEPS)
    curve.set_parts("draft", STEPS["draft"], 0.002)
    curve.sampled = True
    for depth in (0, 1, 4):
        curve.learn(GIVEN, depth, 100, 1.4)
    curve.sampled = False
    curve.learn("draft", 3, 3000, 2.1)
    play(curve, "draft", 2, 1.5)
    again = CostCurve()
    again.restore(json.loads(json.dumps(curve.as_dict())))
    assert again.as_dict() == curve.as_dict()
    for depth, length in ((1, 100), (3, 100), (5, 9000)):
        assert again.round("draft", depth, length) == curve.round("draft", depth, length)


@pytest.mark.parametrize("cost", [0, -1, float("nan"), float("inf")])
def test_what_is_no_cost_is_refused(cost: float) -> None:
    with pytest.raises(ValueError, match="no cost"):
        CostCurve().learn("draft", 4, 100, cost)


def test_more_rows_are_never_expected_to_cost_less_than_before_them() -> None:
    curve = CostCurve(STEPS)
    rows = [verify(curve, it, 100) for it in range(1, 40)]
    assert all(a <= b for a, b in pairwise(rows))
