"""How a drafter has fared of late."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macspec.control import BUCKETS, RecentAcceptance, bucket_of

ROUNDS = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), max_size=200)


@given(ROUNDS, st.integers(-5, 10_000))
def test_any_history_gives_a_share(rounds: list[tuple[int, int]], unjudged: int) -> None:
    recent = RecentAcceptance()
    for drafted, accepted in rounds:
        recent.observe(drafted, min(accepted, drafted))
    assert 0 <= recent.share(unjudged) <= 1
    assert 0 <= bucket_of(recent.share(unjudged)) < BUCKETS


def test_what_stood_of_late_counts_most() -> None:
    recent = RecentAcceptance()
    for _ in range(50):
        recent.observe(4, 4)
    assert bucket_of(recent.share()) == BUCKETS - 1
    for _ in range(50):
        recent.observe(4, 0)
    assert bucket_of(recent.share()) == 0


def test_a_bad_stretch_is_forgotten_while_nothing_is_judged() -> None:
    recent = RecentAcceptance()
    for _ in range(200):
        recent.observe(4, 4)
    usual = recent.share()
    for _ in range(20):
        recent.observe(4, 0)
    shares = [recent.share(unjudged) for unjudged in range(200)]
    assert bucket_of(shares[0]) == 0
    assert shares == sorted(shares)
    assert bucket_of(shares[-1]) == pytest.approx(bucket_of(usual), abs=1)


def test_a_drafter_that_never_guesses_right_stays_where_it_is() -> None:
    recent = RecentAcceptance()
    for _ in range(500):
        recent.observe(4, 0)
    assert {bucket_of(recent.share(unjudged)) for unjudged in range(500)} == {0}
