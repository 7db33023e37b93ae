"""What a round costs, in plain steps."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macspec.control import CostCurve
from macspec.control.cost import (
    COMPARISONS,
    EDGES,
    OUT_OF_ORDER,
    ROWS,
    RUN,
    SHIPPED,
    SURE,
    TRIES,
    UNPIPELINED,
    PlainStep,
    bucket,
    candidates,
)

costs = st.floats(0.2, 20)


def plain(curve: CostCurve, seconds: float = 1.0, length: int = 100) -> None:
    """Plain rounds in a row."""
    for _ in range(RUN):
        curve.observe(None, 0, length, seconds, overlaps=2)


def test_before_anything_is_measured_the_shipped_curve_holds() -> None:
    curve = CostCurve({"draft": 0.1})
    assert [curve.verify(rows, 100) for rows in SHIPPED] == list(SHIPPED.values())
    assert curve.verify(10, 100) == pytest.approx((SHIPPED[8] + SHIPPED[12]) / 2)
    assert curve.verify(33, 100) > SHIPPED[32]
    assert curve.round("draft", 3, 100) == pytest.approx(SHIPPED[4] + 0.3 + UNPIPELINED - 1)
    assert curve.round("ngram", 3, 100) == pytest.approx(SHIPPED[4] + UNPIPELINED - 1)
    assert curve.round(None, 0, 100) == 1


@given(st.dictionaries(st.sampled_from(ROWS[1:]), costs, min_size=1))
def test_measured_passes_are_believed(measured: dict[int, float]) -> None:
    curve = CostCurve()
    curve.verify(4, 100)
    for rows, cost in measured.items():
        curve.set_pass(rows, 100, cost)
    for rows, cost in measured.items():
        assert curve.verify(rows, 100) == cost
        # Other lengths take over the nearest length's points.
        assert curve.verify(rows, EDGES[-1] + 1) == cost
    again = {
        rows
        for below, above in pairwise(sorted(measured))
        if measured[below] > OUT_OF_ORDER * measured[above]
        for rows in (below, above)
    }
    assert set(curve.missing(100)) == set(ROWS[1:]) - set(measured) | again
    assert curve.verify(1, 100) == 1


@given(st.lists(costs, min_size=len(ROWS) - 1, max_size=len(ROWS) - 1))
def test_passes_in_order_are_measured_once(measured: list[float]) -> None:
    curve = CostCurve()
    for rows, cost in zip(ROWS[1:], sorted(measured), strict=True):
        curve.set_pass(rows, 100, cost)
    assert curve.missing(100) == []
    assert curve.missing(EDGES[-1] + 1) == list(ROWS[1:])


def test_a_pass_measured_in_a_bad_moment_is_measured_again() -> None:
    truth = {rows: 1 + rows / 8 for rows in ROWS[1:]}
    curve = CostCurve()
    for rows, cost in truth.items():
        curve.set_pass(rows, 100, 4 * cost if rows == 4 else cost)
    while doubtful := curve.missing(100):
        assert set(doubtful) <= {4, 5}
        for rows in doubtful:
            curve.set_pass(rows, 100, truth[rows])
    assert curve.verify(4, 100) == truth[4]
    # What was kept on disk is doubted like what was measured here.
    stored = json.loads(json.dumps(curve.as_dict()))
    stored["passes"] = [
        [rows, at, 4 * cost if rows == 4 else cost] for rows, at, cost in stored["passes"]
    ]
    curve.restore(stored)
    assert curve.missing(100) == [4, 5]


def test_a_pass_that_really_costs_more_than_a_larger_one_is_believed() -> None:
    curve = CostCurve()
    for rows in ROWS[1:]:
        curve.set_pass(rows, 100, 3.0 if rows == 8 else 2.0)
    times = 1
    while curve.missing(100):
        assert set(curve.missing(100)) == {8, 12}
        curve.set_pass(8, 100, 3.0)
        curve.set_pass(12, 100, 2.0)
        times += 1
    assert times == TRIES
    assert curve.verify(8, 100) == 3.0


@given(st.floats(0.3, 3), st.floats(0.5, 2), st.integers(1, 12))
def test_rounds_correct_the_cost_of_their_kind(unit: float, truth: float, depth: int) -> None:
    curve = CostCurve({"draft": 0.05})
    before = curve.round("draft", depth, 100)
    for _ in range(20):
        plain(curve, unit)
        curve.observe("draft", depth, 100, unit * before * truth)
    assert curve.plain.newest == pytest.approx(unit)
    assert curve.round("draft", depth, 100) == pytest.approx(before * truth, rel=0.25)


def test_rounds_are_compared_with_plain_ones_of_a_like_context() -> None:
    curve = CostCurve()
    for _ in range(9):
        plain(curve, 3.0, 400)
    before = curve.round("ngram", 3, 20)
    assert curve.plain.at(20) is None
    curve.observe("ngram", 3, 20, before)
    assert curve.round("ngram", 3, 20) == before
    plain(curve, 1.0, 20)
    assert (curve.plain.newest, curve.plain.at(30), curve.plain.at(380)) == (1.0, 1.0, 3.0)
    for _ in range(9):
        curve.observe("ngram", 3, 20, before)
    assert curve.round("ngram", 3, 20) == pytest.approx(before)


def test_one_slow_round_changes_little() -> None:
    curve = CostCurve()
    for _ in range(9):
        plain(curve)
        curve.observe("ngram", 3, 100, 1.5)
    before = curve.round("ngram", 3, 100)
    curve.observe("ngram", 3, 100, 60.0)
    assert curve.round("ngram", 3, 100) == pytest.approx(before, rel=0.01)


def test_what_holds_for_all_depths_holds_for_one_that_was_not_tried() -> None:
    curve = CostCurve({"draft": 0.1})
    before = {depth: curve.round("draft", depth, 100) for depth in (1, 2, 4, 5)}
    for _ in range(20):
        plain(curve)
        for depth in (1, 4):
            curve.observe("draft", depth, 100, 1.2 * before[depth])
    assert curve.round("draft", 5, 100) == pytest.approx(1.2 * before[5], rel=0.02)
    # Two rounds of one depth in a slow moment do not make it dearer than deeper ones.
    for _ in range(2):
        curve.observe("draft", 2, 100, 1.8 * before[2])
    assert curve.round("draft", 2, 100) < curve.round("draft", 4, 100)


def test_passes_measured_later_settle_what_rounds_showed_before() -> None:
    curve = CostCurve()
    for _ in range(9):
        plain(curve)
        curve.observe("ngram", 7, 100, 5.0)
    for rows in ROWS[1:]:
        curve.set_pass(rows, 100, 2 * SHIPPED[rows])
    assert curve.round("ngram", 7, 100) == pytest.approx(5.0, rel=0.1)
    assert curve.round("ngram", 3, 100) == pytest.approx(2 * SHIPPED[4], rel=0.1)


def test_reading_what_it_missed_is_no_cost_of_the_round_itself() -> None:
    curve = CostCurve({"draft": 0.1})
    assert curve.catching_up("draft", 1) == curve.catching_up("ngram", 900) == 0
    assert curve.catching_up("draft", 9) > curve.catching_up("draft", 4) > 0
    for _ in range(20):
        plain(curve)
        seconds = curve.round("draft", 2, 100) + curve.catching_up("draft", 4)
        curve.observe("draft", 2, 100, seconds, unread=4)
    assert curve.round("draft", 2, 100) == pytest.approx(SHIPPED[3] + 0.2 + UNPIPELINED - 1)
    curve.set_reading("draft", 0.02)
    assert curve.catching_up("draft+", 11) == pytest.approx(0.2)


def test_a_round_is_never_launched_ahead_and_waits_as_a_plain_one_by_itself_does() -> None:
    curve = CostCurve({"draft": 0.1})
    before = curve.round("draft", 2, 100)
    for _ in range(3):
        curve.observe(None, 0, 100, 1.4)
        plain(curve)
    assert curve.round("draft", 2, 100) - before == pytest.approx(
        curve.plain.unpipelined - UNPIPELINED
    )
    assert curve.plain.unpipelined > 1.2


def test_the_ends_of_a_row_of_overlapping_rounds_tell_nothing() -> None:
    curve = CostCurve({"draft": 0.1})
    for _ in range(10):
        curve.observe(None, 0, 100, 0.030, overlaps=1)  # it waited until the next was launched
        for _ in range(RUN):
            curve.observe(None, 0, 100, 0.015, overlaps=2)
        curve.observe(None, 0, 100, 0.001, overlaps=1)
        curve.observe("draft", 2, 100, 0.030)
    assert curve.plain.newest == pytest.approx(0.015)
    assert curve.round("draft", 2, 100) > 1.8


@given(st.integers(0, 32))
def test_candidates_fill_measured_passes_and_never_exceed_the_room(room: int) -> None:
    depths = candidates(room)
    assert list(depths) == sorted(set(depths))
    assert all(1 <= depth <= room for depth in depths)
    assert not depths or depths[-1] == room


@given(st.integers(0, 10**6))
def test_buckets_grow_with_the_context(length: int) -> None:
    assert bucket(length) <= bucket(length + 1) <= len(EDGES)
    assert bucket(EDGES[0]) == 0
    assert bucket(EDGES[0] + 1) == 1


def test_a_curve_comes_back_from_json() -> None:
    curve = CostCurve({"draft": 0.1})
    curve.set_pass(4, 100, 1.6)
    curve.set_step("draft", 0.07)
    curve.set_reading("draft", 0.002)
    curve.observe(None, 0, 100, 0.02)
    plain(curve, 0.018)
    curve.observe("draft", 3, 100, 0.05)
    again = CostCurve()
    again.restore(json.loads(json.dumps(curve.as_dict())))
    assert again.as_dict() == curve.as_dict()
    assert again.verify(4, 100) == 1.6
    assert again.plain.unpipelined == curve.plain.unpipelined > UNPIPELINED


@pytest.mark.parametrize("cost", [0, -1, float("nan"), float("inf")])
def test_what_is_no_cost_is_refused(cost: float) -> None:
    with pytest.raises(ValueError, match="no cost"):
        CostCurve().set_pass(4, 100, cost)


def row(plain: PlainStep, seconds: float, length: int = 100) -> None:
    for _ in range(RUN):
        plain.observe(length, seconds, overlaps=2)


def test_rounds_that_overlap_count_together() -> None:
    plain = PlainStep()
    for seconds in (0.028, 0.002, 0.027, 0.003) * 3:
        plain.observe(100, seconds, overlaps=2)
    assert plain.newest == pytest.approx(0.015)
    plain = PlainStep()
    for seconds in (0.028, 0.002):  # when the first began is not known, nor if the last is all
        plain.observe(100, seconds, overlaps=2)
    assert plain.newest is None


def test_the_ends_of_a_row_tell_nothing() -> None:
    plain = PlainStep()
    for _ in range(10):
        plain.observe(100, 0.030, overlaps=1)
        row(plain, 0.015)
        plain.observe(100, 0.001, overlaps=1)
    assert plain.newest == pytest.approx(0.015)


def test_contexts_that_are_not_alike_are_not_mixed() -> None:
    plain = PlainStep()
    row(plain, 3.0, 4000)
    assert plain.at(20) is None
    row(plain, 1.0, 20)
    assert (plain.newest, plain.at(30), plain.at(3800)) == (1.0, 1.0, 3.0)


def test_what_was_restored_was_not_measured_here() -> None:
    before, plain = PlainStep(), PlainStep()
    row(before, 3.0)
    plain.restore(before.as_dict())
    assert (plain.at(100), plain.measured(100)) == (3.0, None)
    row(plain, 1.0)
    assert (plain.measured(100), plain.measured(4000)) == (1.0, None)


def test_a_round_by_itself_is_no_plain_step() -> None:
    plain = PlainStep()
    for number in range(COMPARISONS):
        assert plain.needs_comparison == (number < SURE)
        plain.observe(100, 0.024, overlaps=0)
        row(plain, 0.020)
    assert plain.unpipelined == pytest.approx(1.2, abs=0.02)
    for _ in range(5):
        plain.observe(100, 0.048, overlaps=0)  # the machine is half as fast by now
    assert plain.newest == pytest.approx(0.040, rel=0.02)


def test_only_rounds_that_follow_each_other_are_compared() -> None:
    plain = PlainStep()
    plain.observe(100, 0.030, overlaps=0)
    plain.interrupted()
    row(plain, 0.020)
    plain.observe(9000, 0.090, overlaps=0)
    row(plain, 0.020)
    assert plain.unpipelined == UNPIPELINED
    row(plain, 0.020)
    assert plain.unpipelined == UNPIPELINED


def test_what_is_left_of_an_earlier_row_is_not_compared() -> None:
    plain = PlainStep()
    for _ in range(RUN - 1):
        plain.observe(100, 0.1, overlaps=2)
    plain.observe(100, 0.024, overlaps=0)
    row(plain, 0.020)
    assert plain.unpipelined == pytest.approx((UNPIPELINED + 1.2) / 2)


@pytest.mark.parametrize("seconds", [0.001, 5.0])
def test_a_comparison_is_believed_within_reason(seconds: float) -> None:
    plain = PlainStep()
    for _ in range(COMPARISONS):
        plain.observe(100, seconds, overlaps=0)
        row(plain, 0.020)
    assert 1 <= plain.unpipelined <= 1.5


def test_it_comes_back_from_json() -> None:
    plain, again, older = PlainStep(), PlainStep(), PlainStep()
    plain.observe(100, 0.024, overlaps=0)
    row(plain, 0.020)
    stored = json.loads(json.dumps(plain.as_dict()))
    again.restore(stored)
    assert (again.newest, again.unpipelined) == (plain.newest, plain.unpipelined)
    older.restore({"plain": stored["plain"]})
    assert (older.newest, older.unpipelined) == (plain.newest, UNPIPELINED)
    for wrong in ({}, {"plain": [[100, -1.0]]}, {"plain": [], "alone": [0.0]}):
        with pytest.raises((ValueError, KeyError)):
            older.restore(wrong)
    assert older.newest == plain.newest


def test_what_a_replay_costs_is_learned_apart_from_rounds_and_plain_steps() -> None:
    curve = CostCurve({"draft": 0.1})
    before = curve.round("draft", 4, 100)
    for number in range(60):
        plain(curve)
        replayed = number % 3 > 0
        curve.observe("draft", 4, 100, before + 0.4 * replayed, replayed=replayed)
        curve.observe(None, 0, 100, UNPIPELINED * (1 + 0.4 * replayed), replayed=replayed)
    assert curve.replay == pytest.approx(0.4, rel=0.1)
    assert curve.round("draft", 4, 100) == pytest.approx(before, rel=0.02)
    assert curve.plain.at(100) == pytest.approx(1.0, rel=0.01)
    again = CostCurve()
    again.restore(json.loads(json.dumps(curve.as_dict())))
    assert again.replay == curve.replay


def test_without_replays_nothing_is_added() -> None:
    curve = CostCurve({"draft": 0.1})
    for _ in range(20):
        plain(curve)
        curve.observe("draft", 4, 100, 1.3 * curve.round("draft", 4, 100))
    assert curve.replay == 0
    with pytest.raises(ValueError, match="no costs"):
        curve.restore(curve.as_dict() | {"replays": [float("nan")]})
