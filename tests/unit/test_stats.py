"""The numbers people see, from a scripted clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macspec.stats import Counters, Latencies, SessionStats


def counted() -> Counters:
    """A prompt of 10 tokens, 4 of them cached, and three passes."""
    counters = Counters(start=100.0, prompt_tokens=10, cached_tokens=4)
    assert counters.count(now=100.5, tokens=2, drafted=1, accepted=1, idle=0.3) == 0.5
    assert counters.count(now=101.0, tokens=4, drafted=3, accepted=3, idle=0.01) == 0.5
    assert counters.count(now=101.2, tokens=1, drafted=3, accepted=0, idle=0.02) == pytest.approx(
        0.2
    )
    return counters


def test_ratios() -> None:
    stats = counted().stats()
    assert (stats.tokens, stats.passes, stats.drafted, stats.accepted) == (7, 3, 7, 4)
    assert stats.acceptance == 4 / 7
    assert stats.acceptance_by_position == (2 / 3, 1 / 2, 1 / 2)
    assert stats.tokens_per_pass == 7 / 3


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
    stats = Counters(start=5.0, prompt_tokens=3).stats()
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
    counters = counted()
    whole = counters.stats()
    counters.slept = True
    slept = counters.stats()
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
