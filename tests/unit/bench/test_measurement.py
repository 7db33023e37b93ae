"""The protocol, from scripted arms: who writes what, when, and what is kept of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest
from scripted_arms import Clock, ScriptedArm, questions

from macspec.bench.cells import cells
from macspec.bench.report import null_test_words
from macspec.bench.run import Protocol, Run, Step
from macspec.bench.sample import Sample
from macspec.bench.sweeps import AGAIN, RUNS, null_test
from macspec.models import Pair
from macspec.power import Conditions

NOMINAL = Conditions("mains", None, "nominal")
PAIR = cast(Pair, None)
"""Scripted arms need none."""

HOT = Conditions("mains", None, "heavy")


def measured(
    arms: Sequence[ScriptedArm], protocol: Protocol, *, count: int = 8, **settings: object
) -> Run:
    """A measurement that is over."""
    clock = arms[0].clock
    run = Run(
        PAIR,
        arms,
        questions(count),
        protocol,
        clock=clock,
        rest=clock.rest,
        **{"state": lambda: NOMINAL, **settings},  # type: ignore[arg-type]
    )
    for _ in run.measure():
        pass
    return run


def two(**differ: float) -> list[ScriptedArm]:
    clock = Clock()
    return [
        ScriptedArm("plain", clock, shake=0.05, chance=random.Random(1)),
        ScriptedArm("other", clock, shake=0.05, chance=random.Random(2), **differ),  # type: ignore[arg-type]
    ]


def test_all_arms_get_the_same_questions_and_seeds() -> None:
    arms = two()
    measured(arms, Protocol(temperatures=(0.0, 0.7), repeats=3))
    assert arms[0].asked == arms[1].asked
    seeds = [seed for _, temperature, seed in arms[0].asked if temperature == 0.7]
    assert len(set(seeds)) == 3 * 8


def test_arms_follow_each_other_and_the_first_one_changes() -> None:
    run = measured(two(), Protocol(temperatures=(0.0,), repeats=2), count=3)
    order = [(it.question, it.arm) for it in run.samples]
    laps = [order[at : at + 2] for at in range(0, len(order), 2)]
    assert all(a[0] == b[0] and a[1] != b[1] for a, b in laps)
    firsts = [lap[0][1] for lap in laps]
    assert firsts[:3] == ["plain", "other", "plain"]
    assert firsts[3:] == ["other", "plain", "other"]


def test_warming_up_is_not_measured() -> None:
    arms = two()
    run = measured(arms, Protocol(temperatures=(0.0, 1.0), repeats=1))
    assert [arm.prepared for arm in arms] == [[0.0, 1.0]] * 2
    assert run.samples[0].at == pytest.approx(2.0)
    assert run.samples[16].at >= run.samples[15].at + 2.0
    assert len(run.samples) == run.total
    assert run.ended == "all"


def test_an_interrupt_keeps_what_was_measured() -> None:
    arms = two()
    clock = arms[0].clock
    run = Run(PAIR, arms, questions(8), Protocol(), clock=clock, state=lambda: NOMINAL)
    going = run.measure()
    kept = [next(going) for _ in range(5)]
    with pytest.raises(KeyboardInterrupt):
        going.throw(KeyboardInterrupt)
    assert run.samples == kept
    assert run.ended == "interrupted"
    assert run.seconds >= 0
    assert cells(run.samples, "plain", ["plain", "other"])


def test_when_the_time_is_over_no_further_question_is_begun() -> None:
    arms = two()
    run = measured(arms, Protocol(temperatures=(0.0,), repeats=50, minutes=0.2))
    assert run.ended == "time"
    assert len(run.samples) < run.total
    assert len(run.samples) % 2 == 0
    last = run.samples[-2].at
    assert last < 12 <= run.seconds


def test_the_time_left_is_that_of_replies_like_those_that_were() -> None:
    steps: list[Step] = []
    clock = Clock()
    arms = [ScriptedArm("plain", clock), ScriptedArm("other", clock)]
    run = Run(
        PAIR,
        arms,
        questions(1, tokens=10),
        Protocol(temperatures=(0.0,), repeats=10),
        clock=clock,
        state=lambda: NOMINAL,
        progress=steps.append,
    )
    list(run.measure())
    told = [step for step in steps if step.seconds_left is not None]
    each = run.samples[1].at - run.samples[0].at
    assert told[0].seconds_left == pytest.approx(each * (told[0].total - told[0].done))
    assert told[-1].done == told[-1].total - 1


def test_what_an_arm_cannot_answer_is_told_and_counted() -> None:
    arms = two()
    arms[1].cannot = "it cannot read"
    run = measured(arms, Protocol(temperatures=(0.0,), repeats=2), count=3)
    assert run.not_answered == {"other: it cannot read": 6}
    assert {it.arm for it in run.samples} == {"plain"}
    assert run.ended == "all"


def test_a_hot_machine_is_waited_for() -> None:
    states = iter([NOMINAL, HOT, HOT, NOMINAL])
    arms = two()
    run = measured(
        arms,
        Protocol(temperatures=(0.0,), repeats=1, cool_down=1.0),
        count=2,
        state=lambda: next(states, NOMINAL),
    )
    assert run.hot == 0
    assert [state for _, state in run.conditions] == [NOMINAL, HOT, NOMINAL]
    assert run.samples[0].at >= 2 + 10 + 1


def test_a_machine_that_stays_hot_is_measured_as_it_is() -> None:
    run = measured(
        two(), Protocol(temperatures=(0.0,), repeats=1, cool_down=1.0), count=2, state=lambda: HOT
    )
    assert run.hot == 4
    assert len(run.samples) == 4


def test_a_ratio_that_is_there_is_found() -> None:
    arms = two(speed=80.0)
    run = measured(arms, Protocol(temperatures=(0.0,), repeats=5))
    found = {cell.arm: cell for cell in cells(run.samples, "plain", ["plain", "other"])}
    speedup = found["other"].speedup
    assert speedup is not None
    assert speedup.value == pytest.approx(1.6, rel=0.05)
    assert not speedup.holds(1.0)


def test_a_method_against_itself_holds_one_in_nineteen_of_twenty_runs() -> None:
    clock = Clock()
    names = ("auto", f"auto{AGAIN}")
    arms = [
        ScriptedArm(name, clock, shake=0.08, hiccups=0.05, chance=random.Random(number))
        for number, name in enumerate(names, 5)
    ]
    once = Protocol(temperatures=(0.0, 0.7), repeats=3)
    run = measured(arms, replace(once, repeats=RUNS * once.repeats))
    for found in null_test(run.samples, "auto", once.repeats):
        assert found["runs"] == RUNS
        assert found["held"] >= 19
        assert "1.00 is in the interval in" in null_test_words(found)


def test_a_slower_double_is_caught() -> None:
    clock = Clock()
    arms = [
        ScriptedArm("auto", clock, shake=0.05, chance=random.Random(5)),
        ScriptedArm(f"auto{AGAIN}", clock, speed=40, shake=0.05, chance=random.Random(6)),
    ]
    once = Protocol(temperatures=(0.0,), repeats=3)
    run = measured(arms, replace(once, repeats=RUNS * once.repeats))
    (found,) = null_test(run.samples, "auto", once.repeats)
    assert found["held"] <= 1


def test_runs_that_were_cut_off_do_not_count() -> None:
    clock = Clock()
    arms = [ScriptedArm("auto", clock), ScriptedArm(f"auto{AGAIN}", clock)]
    once = Protocol(temperatures=(0.0,), repeats=3)
    run = measured(arms, replace(once, repeats=RUNS * once.repeats))
    samples: list[Sample] = [it for it in run.samples if it.repeat < 7]
    (found,) = null_test(samples, "auto", once.repeats)
    assert found["runs"] == 2
