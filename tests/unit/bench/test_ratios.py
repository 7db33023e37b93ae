"""Ratios and their intervals: what is true is found, as often as is promised."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macspec.bench import cells as statistics
from macspec.bench.cells import Pairs, ratio, student

positive = st.floats(0.01, 100)
some_pairs = st.dictionaries(
    st.text("abc", min_size=1, max_size=3),
    st.lists(st.tuples(positive, positive), min_size=1, max_size=4),
    min_size=1,
    max_size=8,
)


def drawn(
    tasks: int, repeats: int, truth: float, chance: random.Random, *, spread: float = 0.15
) -> Pairs:
    """Speeds of two arms: tasks differ in the gain, replies shake and some are held up."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for task in range(tasks):
        level = chance.lognormvariate(0, 1)
        gain = math.log(truth) + (chance.gauss(0, spread) if spread else 0)
        pairs[str(task)] = [
            (level * math.exp(gain) * _shaken(chance), level * _shaken(chance))
            for _ in range(repeats)
        ]
    return pairs


def _shaken(chance: random.Random) -> float:
    held_up = 1 + chance.expovariate(1.0) if chance.random() < 0.05 else 1.0
    return chance.lognormvariate(0, 0.05) / held_up


def test_the_ratio_is_that_of_the_medians_and_counts_every_task_alike() -> None:
    pairs = {"a": [(2.0, 1.0), (2.0, 1.0), (90.0, 1.0)], "b": [(8.0, 1.0)]}
    found = ratio(pairs)
    assert found is not None
    assert found.value == pytest.approx(4.0)
    assert (found.tasks, found.pairs) == (2, 4)


def test_no_pairs_no_ratio() -> None:
    assert ratio({}) is None
    assert ratio({"a": []}) is None


@given(some_pairs)
def test_swapping_the_arms_inverts_it(pairs: Pairs) -> None:
    one = ratio(pairs)
    other = ratio({task: [(b, a) for a, b in row] for task, row in pairs.items()})
    assert one is not None
    assert other is not None
    assert one.value * other.value == pytest.approx(1)


@given(some_pairs)
def test_the_interval_holds_its_ratio(pairs: Pairs) -> None:
    found = ratio(pairs)
    assert found is not None
    if found.low is not None and found.high is not None:
        assert found.low <= found.high
        assert found.low <= found.value * (1 + 1e-9) or found.over == "repeats"
        assert found.over in ("tasks", "repeats")


def test_the_same_numbers_give_the_same_interval() -> None:
    pairs = drawn(8, 3, 1.4, random.Random(3))
    assert ratio(pairs) == ratio(pairs)


def test_too_little_gives_no_interval() -> None:
    few = drawn(5, 2, 1.4, random.Random(3))
    found = ratio(few)
    assert found is not None
    assert not found.known
    assert not found.holds(found.value)


def test_what_an_interval_speaks_of() -> None:
    chance = random.Random(4)
    over = [ratio(drawn(tasks, 4, 1.2, chance)) for tasks in (2, 5, 6)]
    assert [it.over for it in over if it is not None] == ["repeats", "repeats", "tasks"]


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(4, 2.776445), (5, 2.570582), (7, 2.364624), (30, 2.042272)]
)
def test_students_quantile(freedom: int, quantile: float) -> None:
    assert student(freedom) == pytest.approx(quantile, rel=0.003)


@pytest.mark.parametrize(("tasks", "repeats"), [(6, 3), (8, 1), (8, 3), (20, 1), (3, 3), (2, 4)])
@pytest.mark.parametrize("truth", [1.0, 1.8])
def test_intervals_hold_the_truth_as_often_as_they_promise(
    monkeypatch: pytest.MonkeyPatch, tasks: int, repeats: int, truth: float
) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    chance = random.Random(f"{tasks} {repeats} {truth}")
    # With few tasks an interval speaks of these alone: then there is no spread between them.
    spread = 0.15 if tasks >= statistics.LEAST_TASKS else 0.0
    trials = 300
    held = 0
    for number in range(trials):
        found = ratio(drawn(tasks, repeats, truth, chance, spread=spread), seed=number)
        assert found is not None
        held += found.holds(truth)
    # 95 %, three standard errors below; over few repeats the intervals are on the safe side.
    assert held / trials >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials)
    if spread:
        assert held / trials <= 0.95 + 3 * math.sqrt(0.95 * 0.05 / trials)


def test_a_difference_that_is_there_is_found() -> None:
    chance = random.Random(6)
    for _ in range(20):
        found = ratio(drawn(8, 5, 1.3, chance, spread=0.05))
        assert found is not None
        assert not found.holds(1.0)
        assert found.value == pytest.approx(1.3, rel=0.1)
