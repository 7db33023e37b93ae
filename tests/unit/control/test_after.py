"""How a draft model fares after each token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macspec.control import TokenAcceptance

SHARE = st.floats(0, 1)
CHAINS = st.lists(
    st.tuples(st.lists(st.integers(0, 5), min_size=1, max_size=9), st.integers(0, 9), SHARE),
    max_size=100,
)


@given(CHAINS, st.integers(0, 6), SHARE)
def test_it_is_a_share_whatever_was_seen(
    chains: list[tuple[list[int], int, float]], token: int, usual: float
) -> None:
    after = TokenAcceptance()
    for text, more, then in chains:
        after.observe(text, len(text) - 1 + more, then)
    assert 0 <= after.share(token, usual) <= 1
    assert after.share(99, usual) == usual


def test_where_chains_fall_less_is_expected_and_elsewhere_nothing_changes() -> None:
    after = TokenAcceptance()
    for _ in range(100):
        after.observe([1], 4, 0.6)
        after.observe([2, 3, 4, 5, 6], 4, 0.6)
    assert after.share(1, 0.6) < 0.3
    assert after.share(2, 0.6) > 0.8
    assert after.share(7, 0.6) == 0.6


def test_every_token_of_a_chain_says_something_up_to_where_it_fell() -> None:
    after = TokenAcceptance()
    after.observe([1, 2, 3], 5, 0.5)
    shares = [after.share(token, 0.5) for token in (1, 2, 3, 4)]
    assert shares[0] > 0.5  # two of three
    assert shares[1] < 0.5  # one of three
    assert shares[2] < shares[1]  # none
    assert shares[3] == 0.5


def test_a_text_that_is_hard_as_a_whole_says_nothing_of_its_tokens() -> None:
    after = TokenAcceptance()
    for _ in range(1000):
        after.observe([1], 3, 0.02)
    assert after.share(1, 0.9) == pytest.approx(0.9, abs=0.03)


def test_what_was_seen_long_ago_fades() -> None:
    after = TokenAcceptance()
    for _ in range(200):
        after.observe([1], 3, 0.6)
    low = after.share(1, 0.6)
    for _ in range(200):
        after.observe([1, 2, 3, 4], 3, 0.6)
    assert low < 0.3 < 0.7 < after.share(1, 0.6)
