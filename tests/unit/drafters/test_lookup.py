"""What drafters that copy have in common."""

from __future__ import annotations

import random

import pytest

from macspec.control import Offer
from macspec.drafters import Lookup, NGram, Suffix

BUCKETS = [(1, 0), (2, 1), (3, 2), (4, 3), (5, 3), (6, 4), (8, 4), (9, 5), (15, 5), (16, 6)]
LONG = [(31, 6), (32, 7), (63, 7), (64, 7), (100, 7)]


def text(match: int) -> list[int]:
    """Ends with as many tokens as have been followed by 0, 1, 2, ... before."""
    run = list(range(1000, 1000 + match))
    return [7, *run, *range(40), 8, *run]


@pytest.mark.parametrize("kind", [NGram, Suffix])
@pytest.mark.parametrize(("match", "bucket"), BUCKETS + LONG)
def test_the_bucket_tells_how_long_the_match_is(
    kind: type[NGram | Suffix], match: int, bucket: int
) -> None:
    drafter = kind()
    found = match > 1 or kind is Suffix
    assert drafter.offer(text(match)) == (
        Offer(kind.name, 32, bucket) if found else Offer(kind.name, 0, 0)
    )


@pytest.mark.parametrize(("went_on", "bucket"), [([1, 1, 1], 3), ([1, 1, 2], 1), ([1, 2, 3], 0)])
def test_a_match_that_goes_on_in_many_ways_is_less_sure(went_on: list[int], bucket: int) -> None:
    run = [90, 91, 92, 93]
    said = [token for n, way in enumerate(went_on) for token in (50 + n, *run, *[way] * 40)]
    # What four tokens agree on counts 4, what two of three places agree on 4 * 2 / 3.
    assert Suffix().offer([*said, 60, *run]) == Offer("suffix", 32, bucket)


@pytest.mark.parametrize("kind", [NGram, Suffix])
def test_a_longer_match_is_surer_and_a_nearer_token_too(kind: type[NGram | Suffix]) -> None:
    def said(match: int) -> list[float]:
        ids, chances = kind().continuation(text(match), 8)
        assert ids == [*range(8)]
        return chances

    short, long = said(2), said(20)
    assert short[0] == pytest.approx(3 / 4)
    for chances in (short, long):
        assert chances[0] < 1
        assert chances == sorted(chances, reverse=True)
    assert all(a < b for a, b in zip(short, long, strict=True))


@pytest.mark.parametrize("drafter", [NGram(), Suffix()])
def test_another_conversation_starts_from_nothing(drafter: Lookup) -> None:
    assert drafter.offer(text(6)).bucket == 4
    drafter.rollback(0)
    assert drafter.offer([5, 6, 7]) == Offer(drafter.name, 0, 0)
    assert drafter.continuation([5, 6, 7], 4) == ([], [])


def test_a_short_copy_is_offered_as_such() -> None:
    assert NGram(copy=3).offer(text(4)) == Offer("ngram", 3, 2)


@pytest.mark.parametrize("kind", [NGram, Suffix])
def test_an_expected_text_is_searched_as_if_it_stood_before(kind: type[NGram | Suffix]) -> None:
    """Compared with a drafter that reads it there, while tokens come, go and come again."""
    dice = random.Random(3)
    said: list[int] = []
    drafter = kind()
    for expected in ([dice.randrange(4) for _ in range(60)], [], [1, 2, 3, 1]):
        drafter.expect(expected)
        for _ in range(40):
            if dice.random() < 0.2:
                del said[dice.randrange(len(said) + 1) :]
                drafter.rollback(len(said))
            said.append(dice.randrange(4))
            found = drafter.offer(said), drafter.continuation(said, 8)
            whole = [*expected, *said]
            assert found == (kind().offer(whole), kind().continuation(whole, 8))
