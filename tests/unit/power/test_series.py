"""One rail's counter: batches, stalls, wrap-around."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scriptedpower import Script, steady

from macspec.power.history import HOLD, SPAN, Series
from macspec.power.source import BATCHED_LEAST, Rail

POWER = st.floats(0.5, 200)
PHASE = st.floats(0, 2.5)


def played(script: Script, rail: Rail, start: float, seconds: float, step: float = 1.0) -> Series:
    """A series that was read every ``step`` seconds."""
    series = Series(rail)
    for number in range(int(seconds / step) + 1):
        at = start + number * step
        series.add(at, script.shown(at))
    return series


@given(watts=POWER, start=st.floats(10, 1e5), at=st.floats(1, 20), length=st.floats(0.5, 20))
def test_a_smooth_rail_is_exact(watts: float, start: float, at: float, length: float) -> None:
    series = played(Script(steady(watts)), Rail("gpu"), start, 45)
    joules = series.joules(start + at, start + at + length)
    assert joules == pytest.approx(watts * length, rel=1e-6)
    assert series.watts(start + 45) == pytest.approx(watts, rel=1e-6)


@given(
    watts=POWER,
    period=st.floats(0.3, 2.3),
    phase=PHASE,
    at=st.floats(6, 12),
    length=st.floats(BATCHED_LEAST, 30),
)
def test_a_batched_rail_is_right_to_a_second(
    watts: float, period: float, phase: float, at: float, length: float
) -> None:
    script = Script(steady(watts), period=period, phase=phase)
    series = played(script, Rail("cpu", batched=True), 100, 50)
    joules = series.joules(100 + at, 100 + at + length)
    # Both ends of a stretch between movements are seen up to a second late.
    assert joules is not None
    assert abs(joules - watts * length) <= watts * 1.001


@given(watts=POWER, period=st.floats(0.3, 2.3), phase=PHASE, until=st.integers(10, 60))
def test_a_batched_rail_shows_no_batches(
    watts: float, period: float, phase: float, until: int
) -> None:
    script = Script(steady(watts), period=period, phase=phase)
    shown = played(script, Rail("cpu", batched=True), 100, until).watts(100 + until)
    assert shown is not None
    assert abs(shown / watts - 1) <= 1.001 / (SPAN[True] - 1)


@given(st.lists(st.floats(0, 50), min_size=2, max_size=60), st.booleans())
def test_never_zero_watts_for_a_counter_that_stood_still(steps: list[float], batched: bool) -> None:
    series, raw = Series(Rail("cpu", batched=batched)), 5.0
    for number, step in enumerate(steps):
        raw += step
        series.add(float(number), raw)
        watts = series.watts(float(number))
        assert watts is None or watts > 0
        joules = series.joules(0.0, float(number))
        assert joules is None or joules > 0


def test_a_power_is_held_for_a_while_and_then_no_more() -> None:
    series = played(Script(steady(30)), Rail("gpu"), 0, 20)
    assert series.watts(20 + HOLD - 0.1) == pytest.approx(30)
    assert series.watts(20 + HOLD + 0.1) is None


@given(watts=POWER, limit=st.floats(450, 5000), offset=st.floats(0, 1e6))
def test_a_counter_that_wraps_around_counts_on(watts: float, limit: float, offset: float) -> None:
    plain = played(Script(steady(watts)), Rail("cpu"), 0, 120)
    wrapping = Script(steady(watts, offset), wraps_at=limit)
    wrapped = played(wrapping, Rail("cpu", wraps_at=limit), 0, 120)
    assert wrapped.joules(3.3, 111.1) == pytest.approx(plain.joules(3.3, 111.1), rel=1e-6)


def test_a_counter_that_begins_anew_is_said_and_forgotten() -> None:
    series = Series(Rail("gpu"))
    assert series.add(0, 500)
    assert series.add(1, 510)
    assert not series.add(2, 3)
    assert series.watts(2) is None
    assert series.add(3, 13)
    assert series.add(4, 23)
    assert series.watts(4) == pytest.approx(10)


def test_the_first_reading_of_a_batched_rail_is_no_border() -> None:
    series = Series(Rail("cpu", batched=True))
    series.add(0, 100.0)  # up to two seconds old
    series.add(1, 140.0)
    assert series.joules(0, 1) is None
    series.add(3, 180.0)
    assert series.joules(1, 3) == pytest.approx(40)


def test_a_window_that_was_hardly_seen_has_no_joules() -> None:
    series = played(Script(steady(10)), Rail("gpu"), 100, 10)
    assert series.joules(100, 119) == pytest.approx(190)
    assert series.joules(100, 121) is None
    assert series.joules(89, 100) is None
    assert series.joules(105, 105) is None


def test_two_readings_of_one_moment_lose_nothing() -> None:
    series = Series(Rail("gpu"))
    for seconds, raw in ((0, 0), (1, 10), (1, 12), (2, 20)):
        series.add(seconds, raw)
    assert series.joules(0, 2) == pytest.approx(20)
