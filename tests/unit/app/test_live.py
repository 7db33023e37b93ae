"""Events become the numbers of the panel, each at the same cost."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import PAIR, STATUS

from macspec.app.panel.live import LONGEST, STEP, LiveStats, Speeds
from macspec.events import Finished, Prefilled, Prefilling, Round, Text
from macspec.power import ClockWatch
from macspec.stats import RECENT, ReplyCounter
from macspec.worker import Failed, Loaded, LoadProgress


def passed(
    tokens: int, seconds: float = 0.1, drafted: int = 0, accepted: int = 0, depth: int = 0
) -> Round:
    drafter = "draft" if drafted else None
    why = f"depth {depth}"
    return Round(tuple(range(tokens)), drafter, depth, drafted, accepted, seconds, 0.0, 1.0, why)


def live() -> LiveStats:
    """With a pair, and a reply that has been asked for."""
    stats = LiveStats()
    stats.see(Loaded(PAIR))
    stats.asked()
    return stats


def test_what_happens_is_named() -> None:
    stats = LiveStats()
    assert (stats.state().activity, stats.state().target) == ("no model", None)
    stats.loading()
    stats.see(LoadProgress("reading", 30, 120))
    assert (stats.state().activity, stats.state().progress) == ("loading", 0.25)
    stats.see(Loaded(PAIR))
    state = stats.state()
    assert (state.activity, state.progress, state.target) == ("ready", None, PAIR.target)
    assert (state.memory_plan, state.context_limit) == (PAIR.planned, PAIR.context)
    stats.asked()
    assert stats.state().activity == "waiting"
    stats.see(Prefilling(512, 2048))
    assert (stats.state().activity, stats.state().progress) == ("reading", 0.25)
    stats.see(Prefilled(2048, 0, 3.0))
    assert (stats.state().activity, stats.state().ttft_s) == ("writing", 3.0)
    stats.see(Failed("crashed", "gone"))
    stats.resting()
    assert stats.state().activity == "ready"


def test_why_is_of_the_reply_that_is_shown() -> None:
    stats = LiveStats()
    stats.see(Loaded(PAIR))
    stats.see(replace(STATUS, why="nothing is decided yet"))
    assert stats.state().why == "nothing is decided yet"
    stats.asked()
    assert stats.state().why == ""
    stats.see(passed(1, depth=3))
    assert stats.state().why == "depth 3"
    stats.resting()
    assert stats.state().why == "depth 3"


def test_another_conversation_is_not_in_the_context() -> None:
    stats = live()
    stats.see(Prefilled(10, 0, 0.5))
    stats.see(passed(2))
    assert stats.state().context_used == 12
    stats.elsewhere(9)
    assert (stats.state().context_used, stats.state().tokens) == (9, 0)
    stats.asked()
    stats.see(Prefilled(30, 0, 0.5))
    assert stats.state().context_used == 30


def reply(stats: LiveStats, plain: float | None, drafted: int = 2) -> None:
    """A reply of 81 tokens in 2 seconds of decode, and what the engine reports of it."""
    counter = ReplyCounter()
    stats.asked()
    for number in range(41):
        event = passed(2 if number else 1, 0.05, drafted, drafted // 2, drafted)
        for each in (stats, counter):
            each.see(event)
    counter.plain_seconds = plain
    stats.see(Finished("end", "", (), 1, "block", "auto", "auto", counter.stats()))


def test_plain_is_of_this_pair_or_not_known() -> None:
    stats = live()
    reply(stats, 0.05)
    state = stats.state()
    assert (state.session_tokens, state.plain_tokens_per_s) == (80, pytest.approx(20))
    assert state.session_tokens_per_s == pytest.approx(40)
    assert state.session_speedup == pytest.approx(2.0)
    reply(stats, None)
    assert stats.state().plain_tokens_per_s is None
    assert stats.state().session_speedup == pytest.approx(2.0)
    reply(stats, 0.05)
    other = replace(PAIR, target="another")
    stats.see(Loaded(other))
    stats.see(replace(STATUS, plain_seconds=0.05))  # of the pair before
    state = stats.state()
    assert (state.plain_tokens_per_s, state.session_tokens, state.tokens) == (None, 0, 0)
    assert state.tokens_per_s is state.tokens_per_s_reply is state.session_speedup is None


def test_a_reply_without_drafts_is_not_compared() -> None:
    stats = live()
    reply(stats, 0.05, drafted=0)
    state = stats.state()
    assert (state.acceptance, state.session_speedup, state.session_tokens) == (None, None, 80)


def test_after_a_comparison_all_speeds_are_of_the_reply() -> None:
    stats = live()
    reply(stats, 0.05)
    shown, before = stats.shown, stats.state()
    stats.asked()
    stats.see(Prefilled(10, 0, 0.5))
    for _ in range(9):
        stats.see(passed(4, 0.05))
    stats.resting()
    stats.show(shown)
    after = stats.state()
    assert after.tokens_per_s is None
    assert after.tokens_per_s_reply == before.tokens_per_s_reply


def test_a_reply_that_waits_for_a_pair_waits_on() -> None:
    stats = LiveStats()
    stats.loading()
    stats.asked()
    stats.see(LoadProgress("reading", 30, 120))
    assert stats.state().activity == "loading"
    stats.see(Loaded(PAIR))
    assert stats.state().activity == "waiting"
    stats.see(Prefilled(10, 0, 0.5))
    assert stats.state().activity == "writing"


def test_acceptance_by_position_and_of_late() -> None:
    stats = live()
    stats.see(Prefilled(10, 4, 0.5))
    stats.see(passed(1))
    stats.see(passed(3, drafted=4, accepted=2, depth=4))
    stats.see(Text("x", ()))
    stats.see(passed(5, drafted=4, accepted=4, depth=4))
    state = stats.state()
    assert (state.tokens, state.passes, state.tokens_per_pass) == (9, 3, 3.0)
    assert state.acceptance == state.acceptance_now == 0.75
    assert state.acceptance_by_position == (1.0, 1.0, 0.5, 0.5)
    assert (state.drafter, state.round_depth, state.why) == ("draft", 4, "depth 4")
    assert state.context_used == 19
    for _ in range(RECENT):
        stats.see(passed(1, drafted=1))
    assert (stats.state().acceptance_now, stats.state().acceptance) == (0.0, 6 / (8 + RECENT))
    stats.see(passed(1))
    assert (stats.state().drafter, stats.state().round_depth) == (None, 0)


def test_at_the_end_the_numbers_are_the_engine_s_own() -> None:
    stats, counter = live(), ReplyCounter()
    stats.see(Prefilled(10, 0, 0.5))
    for number in range(40):
        seconds = 0.5 if number == 0 else 0.02 + 0.001 * (number % 7)
        for each in (counter, stats):
            each.see(passed(2, seconds, 1, 1, 1))
    before = stats.state()
    counter.plain_seconds = 0.04
    final = counter.stats()
    stats.see(Finished("end", "", (), 1, "block", "auto", "auto", final))
    after = stats.state()
    assert after.activity == "ready"
    for state in (before, after):
        assert state.tokens_per_s_reply == pytest.approx(final.decode_tokens_per_s)
        assert state.itl_ms_median == pytest.approx(final.itl_ms_median, rel=0.02)
        assert state.itl_ms_p95 == pytest.approx(final.itl_ms_p95, rel=0.02)
        assert state.ttft_s == final.ttft_s
    assert after.itl_ms_p95 == final.itl_ms_p95
    assert after.plain_tokens_per_s == pytest.approx(25)


def test_a_sleep_voids_the_times_and_nothing_else() -> None:
    clock, wall = iter(range(100)), iter([*range(3), *range(500, 600)])
    stats = LiveStats(ClockWatch(lambda: next(clock), lambda: next(wall)))
    stats.asked()
    stats.see(Prefilled(10, 0, 0.5))
    stats.see(passed(1, 0.5))
    assert stats.state().ttft_s == 0.5
    stats.see(passed(2, 400.0, 2, 1, 2))
    stats.see(passed(2, 0.1, 2, 1, 2))
    state = stats.state()
    assert (state.tokens, state.acceptance) == (5, 0.5)
    assert state.tokens_per_s_reply is state.itl_ms_median is state.ttft_s is None
    assert state.speeds == ()


def test_what_the_engine_says_of_itself() -> None:
    stats = live()
    stats.see(STATUS)
    state = stats.state()
    assert (state.kernels, state.memory_used) == (STATUS.kernels, STATUS.memory)
    assert state.memory_limit == STATUS.memory_limit
    assert state.plain_tokens_per_s == pytest.approx(22)


def test_an_event_costs_the_same_late_in_a_long_reply() -> None:
    """Not a measurement: what grows with a reply would show as a thousandfold."""
    stats = live()
    stats.see(Prefilled(10, 0, 0.5))

    def spent(rounds: int) -> float:
        began = time.process_time()
        for _ in range(rounds):
            stats.see(passed(3, 0.02, 4, 2, 4))
        stats.state()
        return time.process_time() - began

    first = spent(300)
    for _ in range(60_000):
        stats.see(passed(3, 0.02, 4, 2, 4))
    assert min(spent(300) for _ in range(5)) < 20 * max(first, 1e-3)
    assert len(stats.state().speeds) == LONGEST


def test_the_history_has_one_value_for_each_half_second() -> None:
    speeds = Speeds()
    for _ in range(40):
        speeds.add(2, 0.05)
    assert speeds.values == pytest.approx([40.0] * 4)
    assert speeds.now == pytest.approx(40.0)
    speeds.add(5, 1.25)  # a pass of several steps is spread over them
    assert speeds.values[-2:] == pytest.approx([4.0, 4.0])


@given(st.lists(st.tuples(st.integers(1, 8), st.floats(1e-3, 3)), max_size=40))
def test_the_history_loses_no_token(rounds: list[tuple[int, float]]) -> None:
    speeds = Speeds()
    for tokens, seconds in rounds:
        speeds.add(tokens, seconds)
    shown = sum(speeds.values) * STEP
    assert shown <= sum(tokens for tokens, _ in rounds) + 1e-6
    seconds = sum(seconds for _, seconds in rounds)
    assert abs(len(speeds.values) - seconds / STEP) <= 1 + 1e-6


def test_marks_go_with_their_values() -> None:
    speeds = Speeds()
    speeds.mark("too early to be seen")
    assert speeds.marks == ()
    for number in range(LONGEST + 50):
        if number == 10:
            speeds.mark("ten")
        if number == LONGEST:
            speeds.mark("late")
        speeds.add(1, STEP)
    assert speeds.marks == ((LONGEST - 50, "late"),)
    speeds.mark("now")
    assert speeds.marks[-1] == (LONGEST - 1, "now")
    speeds.add(1, STEP)
    assert speeds.marks[-1] == (LONGEST - 1, "now")
    assert statistics.mean(speeds.values) == pytest.approx(2.0)
