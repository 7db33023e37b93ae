"""Suffix lookup finds what counting over the whole text would, at a bounded cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macspec.control import Offer
from macspec.drafters import Context, Corpus, Suffix, matches
from macspec.drafters.lookup import ROOM
from macspec.drafters.matches import LONGEST, MOST, Places
from macspec.sampling import Sampling

Found = tuple[list[int], list[float], int]
"""Tokens, shares and the length of the match."""


def context(tokens: Sequence[int]) -> Context:
    return Context(tokens, Sampling(), noise=None, keeps_q=True, dispatch=lambda *_: None)


def corpus_of(texts: Sequence[Sequence[int]], limit: int = 10**6) -> Corpus:
    """Past replies, oldest first, in memory alone."""
    corpus = Corpus.open(Path("/nowhere"), "key", limit)
    corpus.replies = corpus.replies.with_new(texts, limit)
    return corpus


def voted(rows: list[list[int]]) -> tuple[list[int], list[float]]:
    """Step by step the child with the largest count, of equals the one seen first."""
    tokens: list[int] = []
    shares: list[float] = []
    share, node = 1.0, rows
    while True:
        children = [row[len(tokens)] for row in node if len(row) > len(tokens)]
        if not children:
            return tokens, shares
        child = max(children, key=lambda token: (children.count(token), -children.index(token)))
        share *= children.count(child) / len(node)
        node = [row for row in node if row[: len(tokens) + 1] == [*tokens, child]]
        tokens.append(child)
        shares.append(share)


def agreement(a: Sequence[int], b: Sequence[int]) -> int:
    """How many of the last tokens agree, as far as it is measured."""
    count = 0
    while count < min(len(a), len(b), LONGEST) and a[~count] == b[~count]:
        count += 1
    return count


def counted(here: list[int], past: Sequence[Sequence[int]]) -> Found:
    """The best continuation by counting at every place of every text."""
    mine: list[tuple[int, int, list[int]]] = []
    for place in range(len(here) - 1, 0, -1):
        row = here[place:]
        while len(row) < ROOM:
            row.append(row[place - len(here)])
        mine.append((agreement(here[:place], here), place, row[:ROOM]))
    theirs = [
        (agreement(text[:place], here), 0, list(text[place:][:ROOM]))
        for text in reversed(past)
        for place in range(len(text), 0, -1)
    ]

    anchor = None
    for back in range(1, 9):
        ended = [p for p in range(len(here) - back - 1, 0, -1) if len(here) > back]
        ended = [p for p in ended if agreement(here[:p], here[: len(here) - back]) >= 6]
        if ended and anchor is None:
            anchor = ended[0] + back

    best: Found = [], [], 0
    for source in (mine, theirs):
        if source is theirs and anchor is not None and not best[0]:
            best = next(row for _, place, row in mine if place == anchor), [1.0] * ROOM, 1
        match = max((match for match, _, _ in source), default=0)
        if not match:
            continue
        node = [(place, row) for length, place, row in source if length == match]
        if source is mine and anchor is not None and match < 6:
            near = [item for item in node if -8 <= item[0] - anchor <= 64]
            node = sorted(near, key=lambda item: abs(item[0] - anchor))[:1] or node
        tokens, shares = voted([row for _, row in node])
        score, to_beat = sum(shares[:match]), sum(best[1][: best[2]])
        if tokens and (score > to_beat + 1e-9 or (score > to_beat - 1e-9 and match > best[2])):
            best = tokens, shares, match
    return best


texts = st.integers(1, 4).flatmap(lambda top: st.lists(st.integers(0, top), max_size=30))
pieces = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 25), st.integers(1, 12)),
        st.lists(st.integers(0, 30), min_size=1, max_size=3),
    ),
    max_size=7,
)
edited = pieces.map(
    lambda pieces: [
        token
        for piece in [(0, 25), *pieces]
        for token in (piece if isinstance(piece, list) else range(piece[0], sum(piece)))
    ]
)
"""A text, then parts of it with other tokens in between."""

steps = st.lists(st.tuples(st.integers(0, 40), st.lists(st.integers(0, 3), max_size=9)), max_size=4)


@settings(deadline=None, max_examples=200)
@given(texts | edited, steps, st.lists(texts, max_size=3))
def test_it_finds_what_counting_finds_after_any_rollbacks(
    tokens: list[int], steps: list[tuple[int, list[int]]], past: list[list[int]]
) -> None:
    past = list({tuple(text): text for text in past if text}.values())
    drafter = Suffix(corpus_of(past))
    with patch.object(matches, "MOST", 10**6):
        for keep, new in [(len(tokens), []), *steps]:
            drafter.rollback(keep)
            tokens = tokens[:keep] + new
            found, shares, match = counted(tokens, past)
            survival = [s * (match + 1) / (match + 1 + j) for j, s in enumerate(shares, 1)]
            assert drafter.continuation(tokens, ROOM) == (found, pytest.approx(survival))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 2), max_size=60), st.integers(0, 60))
def test_a_cut_leaves_nothing_behind(tokens: list[int], length: int) -> None:
    cut = Places(tokens)
    cut.cut(min(length, len(tokens)))
    assert vars(cut) == vars(Places(tokens[:length]))


def test_of_a_match_the_most_frequent_continuation_counts_then_the_latest() -> None:
    ids = [1, 2, 7, 20, 1, 2, 7, 21, 1, 2, 8, 22, 1, 2]
    assert Suffix().continuation(ids, 1) == ([7], [pytest.approx(2 / 3 * 3 / 4)])
    assert Suffix().continuation([1, 2, 7, 20, 1, 2, 8, 21, 1, 2], 1)[0] == [8]


def test_the_longer_match_counts_be_it_here_or_in_a_past_reply() -> None:
    corpus = corpus_of([[1, 2, 3, 7, 7, 7]])
    assert Suffix(corpus).continuation([2, 3, 8, 1, 2, 3], 1)[0] == [7]
    assert Suffix(corpus).continuation([2, 3, 8, 9, 2, 3], 1)[0] == [8]


def test_a_past_reply_ends_where_it_ended() -> None:
    drafter = Suffix(corpus_of([[1, 2, 3, 4], [5, 6, 7]]))
    assert drafter.continuation([1, 2], 8)[0] == [3, 4]
    drafter.rollback(0)
    assert drafter.continuation([3, 4], 8)[0] == []


def test_of_many_places_here_the_latest_count() -> None:
    text = [1, 2, 30] * 2 * MOST + [1, 2, 40, 41] * MOST + [1, 2]
    assert Suffix().continuation([*text[:-2], 50, 1, 2], 1)[0] == [40]


def test_of_many_places_in_past_replies_a_fair_sample_counts() -> None:
    past = [[1000 + n, 1, 2, 7 if n < 90 else 8, n] for n in range(200)]
    assert Suffix(corpus_of(past)).continuation([1, 2], 1)[0] == [8]
    past = [[1000 + n, 1, 2, 7 if n < 110 else 8, n] for n in range(200)]
    assert Suffix(corpus_of(past)).continuation([1, 2], 1)[0] == [7]


def test_a_period_goes_on() -> None:
    assert Suffix().continuation([9, 1, 2, 3, 1, 2, 3], 8)[0] == [1, 2, 3, 1, 2, 3, 1, 2]
    assert Suffix().continuation([5, 5, 5], 4)[0] == [5, 5, 5, 5]


def test_a_copy_goes_on_behind_a_change() -> None:
    original = [*range(10, 40), 15, 99, 98, 97]
    start = [*original, *range(10, 20)]
    replaced, put_in = [*start, 70], [*start, 70, 71, 20]
    assert Suffix().continuation(replaced, 3)[0] == [21, 22, 23]
    assert Suffix().continuation(put_in, 3)[0] == [21, 22, 23]
    assert Suffix().continuation([*start, *range(70, 78)], 3)[0] == [28, 29, 30]
    assert Suffix().continuation([*start, *range(70, 79)], 3)[0] == []
    # Of two places with the same short match the one close by counts, not the latest.
    left_out = [*original, *range(10, 20), 15]
    assert Suffix().continuation(left_out, 3)[0] == [16, 17, 18]
    assert Suffix().continuation([*original, 70, 71, 15], 3)[0] == [99, 98, 97]


def test_what_is_offered_is_proposed_and_searched_once() -> None:
    drafter, text = Suffix(), [1, 2, 3, 4, 5, 1, 2, 3]
    with patch.object(drafter, "_search", wraps=drafter._search) as search:
        assert drafter.offer(text) == Offer("suffix", ROOM, 2)
        proposal = drafter.propose(context(text), 4)
        assert drafter.continuation(text, 2)[0] == [4, 5]
        assert search.call_count == 1
        drafter.offer([*text, 9])
        drafter.rollback(8)
        assert drafter.offer(text).bucket == 2
        assert search.call_count == 3
    assert proposal is not None
    assert proposal.log_q is None
    assert proposal.tokens.dtype == mx.uint32
    assert proposal.tokens.tolist() == [4, 5, 1, 2]


@pytest.mark.parametrize("tokens", [[], [1], [1, 2], [1, 2, 3, 4]])
def test_nothing_is_said_without_a_match(tokens: list[int]) -> None:
    assert Suffix().offer(tokens) == Offer("suffix", 0, 0)
    assert Suffix().propose(context(tokens), 4) is None


@pytest.mark.parametrize("period", [1, 2, 7, 100])
def test_a_search_looks_at_a_bounded_number_of_places(period: int) -> None:
    text = [token % period for token in range(4000)]
    drafter = Suffix(corpus_of([text[:1500], [9, *text[:1500]]]))
    drafter.offer(text)
    for source in (drafter._places, drafter.corpus.replies if drafter.corpus else None):
        rows = type(source).rows
        with patch.object(type(source), "rows", autospec=True, side_effect=rows) as looked:
            drafter._search()
        assert sum(len(call.args[1]) for call in looked.call_args_list) <= MOST
    assert drafter.offer(text).bucket == 7
