"""N-gram lookup copies what a plain search would, at a constant cost for each token."""

from __future__ import annotations

import random
from collections.abc import Sequence

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macspec.drafters import Context, NGram
from macspec.errors import BadOptionError
from macspec.sampling import Sampling


def context(tokens: Sequence[int]) -> Context:
    return Context(tokens, Sampling(), noise=None, keeps_q=True, dispatch=lambda *_: None)


def propose(drafter: NGram, tokens: Sequence[int], depth: int) -> list[int] | None:
    proposal = drafter.propose(context(tokens), depth)
    if proposal is None:
        return None
    assert proposal.log_q is None
    assert proposal.tokens.dtype == mx.uint32
    copied: list[int] = proposal.tokens.tolist()
    return copied


def searched(tokens: Sequence[int], shortest: int, longest: int, depth: int) -> list[int] | None:
    """Longest size first, last match first; a match that meets the end goes on with itself."""
    for size in range(longest, shortest - 1, -1):
        tail = list(tokens[-size:])
        for start in range(len(tokens) - size - 1, -1, -1):
            if len(tail) == size and list(tokens[start : start + size]) == tail:
                text = list(tokens)
                for step in range(depth):
                    text.append(text[start + size + step])
                return text[len(tokens) :]
    return None


texts = st.integers(1, 4).flatmap(lambda top: st.lists(st.integers(0, top), max_size=40))
steps = st.lists(st.tuples(st.integers(0, 40), st.lists(st.integers(0, 3), max_size=6)), max_size=8)


@settings(deadline=None, max_examples=300)
@given(texts, steps, st.integers(1, 3), st.integers(0, 3), st.integers(1, 9))
def test_it_finds_what_a_search_finds_after_any_rollbacks(
    tokens: list[int],
    steps: list[tuple[int, list[int]]],
    shortest: int,
    more: int,
    depth: int,
) -> None:
    drafter = NGram(shortest, shortest + more)
    for keep, new in [(len(tokens), []), *steps]:
        drafter.rollback(keep)
        tokens = tokens[:keep] + new
        assert propose(drafter, tokens, depth) == searched(tokens, shortest, shortest + more, depth)


def test_a_token_taken_back_leaves_the_index_of_the_others() -> None:
    drafter, tokens = NGram(), [number % 97 for number in range(2000)]
    assert propose(drafter, tokens, 2) == [2000 % 97, 2001 % 97]
    indexed = len(drafter._replaced)
    kept = drafter._continued
    with pytest.MonkeyPatch.context() as patch:
        calls: list[int] = []
        original = NGram._runs
        patch.setattr(NGram, "_runs", lambda self: calls.append(0) or original(self))
        drafter.rollback(1999)
        assert propose(drafter, tokens, 2) == [2000 % 97, 2001 % 97]
    assert len(calls) == 2
    assert (len(drafter._replaced), drafter._continued is kept) == (indexed, True)


def test_of_two_matches_the_longer_then_the_later_counts() -> None:
    assert propose(NGram(1, 2), [1, 2, 7, 9, 2, 8, 1, 2], 1) == [7]
    assert propose(NGram(1, 2), [1, 2, 7, 1, 2, 8, 1, 2], 1) == [8]


def test_a_period_goes_on() -> None:
    assert propose(NGram(), [9, 1, 2, 3, 1, 2, 3], 8) == [1, 2, 3, 1, 2, 3, 1, 2]
    assert propose(NGram(), [5, 5, 5], 4) == [5, 5, 5, 5]


def test_a_copy_is_no_longer_than_asked_for() -> None:
    drafter = NGram(copy=3)
    tokens = [1, 2, 3, 4, 5, 6, 1, 2]
    assert propose(drafter, tokens, 32) == [3, 4, 5]
    assert propose(drafter, tokens, 2) == [3, 4]
    assert drafter.offer(tokens).room == 3


@pytest.mark.parametrize("tokens", [[], [1], [1, 2], [1, 2, 3, 4]])
def test_nothing_is_said_without_a_match(tokens: list[int]) -> None:
    assert propose(NGram(), tokens, 4) is None


class Counting(dict[tuple[int, ...], int]):
    """A dictionary that counts what is done with it."""

    operations = 0

    def __setitem__(self, key: tuple[int, ...], value: int) -> None:
        self.operations += 1
        super().__setitem__(key, value)

    def __getitem__(self, key: tuple[int, ...]) -> int:
        self.operations += 1
        return super().__getitem__(key)

    def get(self, key: tuple[int, ...], default: int | None = None) -> int | None:
        self.operations += 1
        return super().get(key, default)


class Watched(list[int]):
    """A context that counts how many of its tokens are read."""

    read = 0

    def __getitem__(self, index: int | slice) -> int | list[int]:
        part = super().__getitem__(index)
        self.read += len(part) if isinstance(part, list) else 1
        return part


def test_the_cost_of_a_token_does_not_grow_with_the_context() -> None:
    rng = random.Random(0)
    drafter = NGram(2, 4)
    index = drafter._continued = Counting()
    text = Watched(rng.randrange(50) for _ in range(32_000))
    propose(drafter, text, 8)
    assert index.operations <= 2 * 3 * 32_000 + 3
    for _ in range(200):
        before, read = index.operations, text.read
        text.extend(rng.randrange(50) for _ in range(4))
        propose(drafter, text, 8)
        assert index.operations - before <= 2 * 4 * 3 + 3
        assert text.read - read == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shortest": 0}, "n-gram window is 0 to 4"),
        ({"shortest": 5, "longest": 4}, "n-gram window is 5 to 4"),
        ({"copy": 0}, "n-gram copy is 0; it must be at least 1"),
    ],
)
def test_bad_options_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(BadOptionError, match=message):
        NGram(**options)
