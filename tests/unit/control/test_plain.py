"""What a plain step takes, and a plain round by itself."""

from __future__ import annotations

import json

import pytest

from macspec.control.cost import COMPARISONS, RUN, SURE, UNPIPELINED, PlainStep


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
