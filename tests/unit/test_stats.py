"""The numbers people see, from a scripted clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macspec.events import Finished, Prefilled, Round
from macspec.stats import Latencies, ReplyCounter, SessionStats


def counted() -> ReplyCounter:
    """A prompt of 10 tokens, 4 of them cached, and three passes."""
    counter = ReplyCounter()
    counter.see(Prefilled(10, 4, 0.5))
    counter.see(Round((1, 2), "draft", 1, 1, 1, 0.5, 0.3, expected=1.5))
    counter.see(Round((3, 4, 5, 6), "draft", 3, 3, 3, 0.5, 0.01, expected=2.5, cost=2.0))
    counter.see(Round((7,), "draft", 3, 3, 0, 0.2, 0.02))
    return counter


def test_ratios() -> None:
    stats = counted().stats()
    assert (stats.tokens, stats.passes, stats.drafted, stats.accepted) == (7, 3, 7, 4)
    assert stats.acceptance == 4 / 7
    assert stats.acceptance_by_position == (2 / 3, 1 / 2, 1 / 2)
    assert stats.tokens_per_pass == 7 / 3
    assert stats.predicted_speedup == 5 / 4
    counter = counted()
    counter.plain_seconds = 0.14
    assert counter.stats().measured_speedup == pytest.approx(1.0)


def test_live_numbers_and_the_engines_own() -> None:
    counter = counted()
    live, exact = counter.stats(live=True), counter.stats()
    assert live.itl_ms_median == pytest.approx(exact.itl_ms_median, rel=0.01)
    assert replace(live, itl_ms_median=exact.itl_ms_median, itl_ms_p95=exact.itl_ms_p95) == exact
    assert counter.newest is not None
    assert counter.newest.tokens == (7,)
    assert counter.recent_acceptance == 4 / 7
    own = replace(exact, tokens=9)
    counter.see(Finished("end", "", (), 1, "block", "auto", "auto", own))
    assert counter.stats() is counter.stats(live=True) is own


def test_times() -> None:
    stats = counted().stats()
    assert stats.ttft_s == pytest.approx(0.5)
    assert stats.prefill_tokens_per_s == pytest.approx(6 / 0.5)
    # The first pass's two tokens belong to prefill.
    assert stats.decode_tokens_per_s == pytest.approx(5 / 0.7)
    assert stats.itl_ms_median == pytest.approx(125)
    # Ranks 0..4: four tokens share 0.5 s, one took 0.2 s; 95 % lies at rank 3.8.
    assert stats.itl_ms_p95 == pytest.approx(125 + 0.8 * 75)
    assert stats.seconds.wall == pytest.approx(1.2)
    assert stats.seconds.prefill == pytest.approx(0.5)
    assert stats.seconds.decode == pytest.approx(0.7)
    assert stats.seconds.device_idle == pytest.approx(0.03)


def test_what_did_not_happen_is_none() -> None:
    stats = ReplyCounter(prompt_tokens=3).stats()
    assert stats.tokens == stats.passes == 0
    for name in ("acceptance", "tokens_per_pass", "ttft_s", "itl_ms_median", "itl_ms_p95"):
        assert getattr(stats, name) is None
    assert stats.decode_tokens_per_s is None
    assert stats.prefill_tokens_per_s is None
    assert stats.seconds.wall == 0


def test_the_dictionary_is_what_json_shows() -> None:
    assert list(counted().stats().as_dict()) == [
        "prompt_tokens", "cached_tokens", "tokens", "passes", "drafted", "accepted",
        "acceptance", "acceptance_by_position", "tokens_per_pass", "ttft_s", "itl_ms_median",
        "itl_ms_p95", "decode_tokens_per_s", "prefill_tokens_per_s", "predicted_speedup",
            "measured_speedup", "seconds", "dropped_messages",
    ]  # fmt: skip


def test_a_session_adds_up() -> None:
    session = SessionStats()
    assert session.acceptance is None
    for _ in range(2):
        session.add(counted().stats())
    assert (session.replies, session.tokens, session.passes) == (2, 14, 6)
    assert session.acceptance == 8 / 14
    assert session.tokens_per_pass == 14 / 6


def test_a_sleep_leaves_counts_and_no_times() -> None:
    counter = counted()
    whole = counter.stats()
    counter.slept = True
    slept = counter.stats()
    assert (slept.tokens, slept.acceptance) == (whole.tokens, whole.acceptance)
    times = ("ttft_s", "itl_ms_median", "itl_ms_p95", "decode_tokens_per_s", "measured_speedup")
    assert {getattr(slept, name) for name in (*times, "prefill_tokens_per_s")} == {None}


@given(st.lists(st.tuples(st.floats(1e-4, 10), st.integers(1, 9)), min_size=1, max_size=60))
def test_live_latencies_are_known_to_one_percent(rounds: list[tuple[float, int]]) -> None:
    latencies = Latencies()
    each: list[float] = []
    for seconds, tokens in rounds:
        latencies.add(seconds, tokens)
        each += [seconds] * tokens
    each.sort()
    for share in (0.5, 0.95):
        found = latencies.quantile(share)
        assert found is not None
        low = each[max(int(share * len(each)) - 1, 0)]
        high = each[min(int(share * len(each)) + 1, len(each) - 1)]
        assert low * 0.98 <= found <= high * 1.02
    assert Latencies().quantile(0.5) is None
