"""How likely drafted tokens are accepted: by confidence and position, and of late."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macspec.control import (
    BUCKETS,
    AcceptanceEstimate,
    RecentAcceptance,
    bucket_of,
)
from macspec.control.acceptance import BY_RECENT, SHIPPED

rounds = st.lists(
    st.tuples(st.sampled_from(["draft", "ngram", "new"]), st.integers(0, BUCKETS - 1),
              st.integers(0, 32), st.integers(0, 32)).map(lambda it: (*it[:3], min(it[2], it[3]))),
    max_size=40,
)  # fmt: skip


@given(rounds)
def test_chances_are_chances_and_tokens_add_up(seen: list[tuple[str, int, int, int]]) -> None:
    acceptance = AcceptanceEstimate()
    for it in seen:
        acceptance.observe(*it)
    for drafter in ("draft", "ngram", "new"):
        for bucket in range(BUCKETS):
            tokens = acceptance.expected(drafter, bucket, 32)
            assert tokens[0] == 1
            gains = [b - a for a, b in pairwise(tokens)]
            assert all(1 >= a >= b >= 0 for a, b in pairwise(gains))


def test_at_first_the_shipped_table_holds() -> None:
    assert AcceptanceEstimate().chance("ngram", 3, 0) == pytest.approx(SHIPPED["ngram"][3])
    assert AcceptanceEstimate().expected("draft", 0, 0) == [1.0]


def test_positions_differ_once_they_are_known() -> None:
    acceptance = AcceptanceEstimate()
    first, later = (acceptance.chance("draft", 4, position) for position in (0, 1))
    assert acceptance.expected("draft", 4, 2)[2] == pytest.approx(1 + first + first * later)
    for run in (0, 1) * 300:  # a chain of two: the first token stands half the time, no second does
        acceptance.observe("draft", 4, 2, run)
    first, later = (acceptance.chance("draft", 4, position) for position in (0, 1))
    assert later < 0.2 < 0.4 < first


def test_bad_luck_in_the_first_rounds_is_no_verdict() -> None:
    acceptance = AcceptanceEstimate()
    for _ in range(3):
        acceptance.observe("draft", 4, 2, 0)
    assert acceptance.chance("draft", 4, 0) > 0.6 * BY_RECENT[4]


@pytest.mark.parametrize("truth", [0.1, 0.5, 0.9])
def test_it_learns_what_is_so(truth: float) -> None:
    chance, acceptance = random.Random(1), AcceptanceEstimate()
    for _ in range(400):
        run = 0
        while run < 4 and chance.random() < truth:
            run += 1
        acceptance.observe("draft", 4, 4, run)
    assert acceptance.chance("draft", 4, 0) == pytest.approx(truth, abs=0.1)
    assert acceptance.chance("draft", 4, 20) == pytest.approx(truth, abs=0.15)


def test_a_bad_drafter_is_known_in_every_bucket() -> None:
    acceptance = AcceptanceEstimate()
    for _ in range(30):
        acceptance.observe("draft", 4, 1, 0)
    assert acceptance.chance("draft", 3, 0) < 0.6 * BY_RECENT[3]
    assert acceptance.chance("ngram", 3, 0) == pytest.approx(SHIPPED["ngram"][3])


def test_tokens_after_the_first_rejected_one_teach_nothing() -> None:
    one, other = AcceptanceEstimate(), AcceptanceEstimate()
    one.observe("draft", 4, 3, 2)
    other.observe("draft", 4, 32, 2)
    assert one.as_dict() == other.as_dict()
    one.observe("draft", 4, 0, 0)
    assert one.as_dict() == other.as_dict()


def test_old_rounds_fade() -> None:
    acceptance = AcceptanceEstimate()
    for _ in range(1000):
        acceptance.observe("draft", 4, 1, 1)
    for _ in range(400):
        acceptance.observe("draft", 4, 1, 0)
    assert acceptance.chance("draft", 4, 0) < 0.5


@given(rounds)
def test_what_was_learned_comes_back_weaker_but_alike(
    seen: list[tuple[str, int, int, int]],
) -> None:
    acceptance, again = AcceptanceEstimate(), AcceptanceEstimate()
    for it in seen:
        acceptance.observe(*it)
    again.restore(json.loads(json.dumps(acceptance.as_dict())))
    twice = AcceptanceEstimate()
    twice.restore(again.as_dict())
    assert twice.as_dict() == again.as_dict()
    for drafter, bucket, *_ in seen:
        assert again.chance(drafter, bucket, 0) == pytest.approx(
            acceptance.chance(drafter, bucket, 0), abs=0.3
        )


@pytest.mark.parametrize(
    "stored", [{"draft": [1, 2]}, {"draft 1 0": [2, 1]}, {"draft 1 0": [1]}, {"draft x 0": [0, 1]}]
)
def test_what_it_did_not_write_is_refused(stored: dict[str, list[float]]) -> None:
    acceptance = AcceptanceEstimate()
    acceptance.observe("draft", 4, 2, 1)
    before = acceptance.as_dict()
    with pytest.raises(ValueError, match=r".+"):
        acceptance.restore(stored)
    assert acceptance.as_dict() == before


ROUNDS = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), max_size=200)


def judged(rounds: Sequence[tuple[int, int]]) -> tuple[RecentAcceptance, int]:
    """What it knows after rounds of drafted and accepted tokens, one behind the other; the length
    of the text."""
    recent, length = RecentAcceptance(), 0
    for drafted, accepted in rounds:
        recent.observe(length, drafted, min(accepted, drafted))
        length += min(accepted, drafted) + 1
    return recent, length


@given(ROUNDS, st.integers(0, 10_000))
def test_any_history_gives_a_share(rounds: list[tuple[int, int]], length: int) -> None:
    recent, _ = judged(rounds)
    assert 0 <= recent.share(length) <= 1
    assert 0 <= bucket_of(recent.share(length)) < BUCKETS


@given(ROUNDS, ROUNDS)
def test_a_text_that_is_taken_back_leaves_nothing_behind(
    kept: list[tuple[int, int]], dropped: list[tuple[int, int]]
) -> None:
    recent, length = judged(kept)
    before = [recent.share(at) for at in range(length + 9)]
    end = length
    for drafted, accepted in dropped:
        recent.observe(end, drafted, min(accepted, drafted))
        end += min(accepted, drafted) + 1
    recent.rollback(length)
    assert [recent.share(at) for at in range(length + 9)] == before


def test_a_token_is_judged_once() -> None:
    recent, length = judged([(4, 4)] * 50)
    before = recent.share(length)
    recent.observe(length - 10, 4, 0)
    assert recent.share(length) == before


def test_what_stood_of_late_counts_most() -> None:
    recent, length = judged([(4, 4)] * 50)
    assert bucket_of(recent.share(length)) == BUCKETS - 1
    recent, length = judged([(4, 4)] * 50 + [(4, 0)] * 50)
    assert bucket_of(recent.share(length)) == 0


def test_a_drafter_that_never_guesses_right_stays_where_it_is() -> None:
    recent, length = judged([(4, 0)] * 500)
    assert {bucket_of(recent.share(length + unjudged)) for unjudged in range(500)} == {0}
