"""Drafters that copy what followed where the last tokens occurred before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from ..choices import MAX_DEPTH
from ..control import Offer
from ..errors import BadOptionError
from .corpus import Corpus
from .drafter import Context, Proposal
from .matches import ANCHOR, END, Places

ROOM = MAX_DEPTH
"""Most tokens that are copied at once."""

BUCKETS = (2, 3, 4, 6, 9, 16, 32)
"""Lowest score of buckets 1 to 7."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """What followed an earlier occurrence of the last tokens."""

    tokens: tuple[int, ...] = ()
    shares: tuple[float, ...] = ()
    """For each token, the share of the places that continue this way up to it."""
    match: int = 0
    """How many of the last tokens match."""

    @property
    def score(self) -> float:
        """Expected number of accepted tokens, among as many as the match is long."""
        return sum(self.shares[: self.match])

    def chances(self, depth: int) -> list[float]:
        """For the first ``depth`` tokens, the chance that it and all before it are right.

        A first guess: the shares, times Laplace's rule of succession after ``match`` successes.
        """
        sure = self.match + 1
        return [share * sure / (sure + step) for step, share in enumerate(self.shares[:depth], 1)]


class Lookup(ABC):
    """Copies from the tokens that it has read; searches once for each new length of the text."""

    name: str

    def __init__(self) -> None:
        self._expected: tuple[int, ...] = ()
        self._length = 0
        self._found: Continuation | None = None

    def expect(self, text: Sequence[int]) -> None:
        """From now on search this text too, as if it stood before the conversation."""
        if self._expected != tuple(text):
            self._forget(0)
            self._read(text)
            self._expected, self._length, self._found = tuple(text), 0, None

    def offer(self, tokens: Sequence[int]) -> Offer:
        found = self._look(tokens)
        return Offer(self.name, len(found.tokens), bisect_right(BUCKETS, found.score))

    def continuation(self, tokens: Sequence[int], depth: int) -> tuple[list[int], list[float]]:
        """Up to ``depth`` ids that would be proposed, and for each the chance that it and all
        before it are right."""
        found = self._look(tokens)
        return list(found.tokens[:depth]), found.chances(depth)

    def propose(self, context: Context, depth: int) -> Proposal | None:
        ids = list(self._look(context.tokens).tokens[:depth])
        return Proposal(mx.array(ids, mx.uint32)) if ids else None

    def observe(self, committed: Sequence[int], drafted: int, accepted: int) -> None:  # noqa: B027  (the same for all)
        """Acceptance does not change what is copied next."""

    def rollback(self, length: int) -> None:
        if length < self._length:
            self._forget(len(self._expected) + length)
            self._length, self._found = length, None

    def _look(self, tokens: Sequence[int]) -> Continuation:
        if self._found is None or len(tokens) > self._length:
            self._read(tokens[self._length :])
            self._length = len(tokens)
            self._found = self._search()
        return self._found

    @abstractmethod
    def _read(self, tokens: Sequence[int]) -> None:
        """Append tokens to the text."""

    @abstractmethod
    def _forget(self, length: int) -> None:
        """Cut the text to its first ``length`` tokens."""

    @abstractmethod
    def _search(self) -> Continuation:
        """How the text may continue."""


class NGram(Lookup):
    """Copies the continuation of the most recent match of the last tokens: prompt lookup (Saxena
    2023).

    An index from each run of ``shortest`` to ``longest`` tokens to where it was last continued
    takes a constant number of dictionary operations a token, no scan.

    Args:
        shortest: fewest tokens that must match.
        longest: most tokens compared; longer matches are preferred.
        copy: most tokens copied at once.

    Raises:
        BadOptionError: unless 1 <= shortest <= longest and copy >= 1.
    """

    name = "ngram"

    def __init__(self, shortest: int = 2, longest: int = 4, copy: int = ROOM) -> None:
        if not 1 <= shortest <= longest:
            raise BadOptionError(
                f"n-gram window is {shortest} to {longest}; it must be 1 <= shortest <= longest"
            )
        if copy < 1:
            raise BadOptionError(f"n-gram copy is {copy}; it must be at least 1")
        super().__init__()
        self.sizes = range(longest, shortest - 1, -1)
        self.copy = copy
        self._tokens: list[int] = []
        self._continued: dict[tuple[int, ...], int] = {}
        self._replaced: list[int] = []
        """What each entry of the index replaced, 0 for nothing: for taking tokens back."""

    def _read(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._tokens.append(token)
            for run in self._runs():
                self._replaced.append(self._continued.get(run, 0))
                self._continued[run] = len(self._tokens) - 1

    def _forget(self, length: int) -> None:
        while len(self._tokens) > length:
            for run in reversed(self._runs()):
                before = self._replaced.pop()
                if before:
                    self._continued[run] = before
                else:
                    del self._continued[run]
            self._tokens.pop()

    def _runs(self) -> list[tuple[int, ...]]:
        """The runs that the last token continues."""
        at = len(self._tokens) - 1
        return [tuple(self._tokens[at - size : at]) for size in self.sizes if size <= at]

    def _search(self) -> Continuation:
        tokens, end = self._tokens, len(self._tokens)
        start, match = self._match()
        if match == 0:
            return Continuation()
        copied: list[int] = []
        for source in range(start, start + self.copy):
            # A match that runs into the end of the text repeats: it is a period.
            copied.append(tokens[source] if source < end else copied[source - end])
        while match < min(start, BUCKETS[-1]) and tokens[start - match - 1] == tokens[~match]:
            match += 1
        return Continuation(tuple(copied), (1.0,) * len(copied), match)

    def _match(self) -> tuple[int, int]:
        """Where the longest indexed match continues, and its size; 0, 0 for none."""
        for size in self.sizes:
            if len(self._tokens) >= size:
                start = self._continued.get(tuple(self._tokens[-size:]))
                if start is not None:
                    return start, size
        return 0, 0


NEAR = range(-8, 65)
"""How far from the anchor the original of a copy may continue."""


class Suffix(Lookup):
    """Copies the likeliest continuation of the longest match: SuffixDecoding (Oliaro et al. 2024,
    arXiv:2411.04975).

    A match of up to ``LONGEST`` tokens is looked for in this conversation and one in past replies.
    From its places the continuation follows the majority; the one with the better score wins, of
    equals the longer match. The score is the expected number of accepted tokens, counted over as
    many tokens as the match is long (as in the paper: a short match says little about what comes
    far behind it). Unlike in the paper, shorter matches are not scored.

    Where a copy with changes is going on (the last long match ended a few tokens ago), a match of
    fewer than ``ANCHOR`` tokens counts near that place only, and without any match the copy goes
    on there, as if one token had matched.

    A search looks at no more than ``MOST`` places here and as many in past replies, where it does
    a few binary searches.

    Args:
        corpus: past replies; None: this conversation alone.
    """

    name = "suffix"

    def __init__(self, corpus: Corpus | None = None) -> None:
        super().__init__()
        self.corpus = corpus
        self._places = Places()

    def _read(self, tokens: Sequence[int]) -> None:
        self._places.extend(tokens)

    def _forget(self, length: int) -> None:
        kept = self._places.tokens[:length]
        if 2 * length < len(self._places.tokens):  # Then it is cheaper to begin anew.
            self._places = Places(kept)
        else:
            self._places.cut(length)

    def _search(self) -> Continuation:
        here, best = self._places, Continuation()
        if self.corpus is not None:
            replies = self.corpus.replies
            match, places = replies.longest(here.tokens)
            best = Continuation(*_vote(replies.rows(places, ROOM)), match)
        match, places = _near(*here.longest(), here.anchor())
        if places and match >= best.score:  # No score is above the length of its match.
            found = Continuation(*_vote(here.rows(places, ROOM)), match)
            if (found.score, match) >= (best.score, best.match):
                best = found
        return best


def _near(match: int, places: list[int], anchor: int | None) -> tuple[int, list[int]]:
    """The same, but of a short match only the place nearest the anchor, if near; of none, that."""
    if anchor is None or match >= ANCHOR:
        return match, places
    if not match:
        return 1, [anchor]
    near = [place for place in places if place - anchor in NEAR]
    return match, [min(near, key=lambda place: abs(place - anchor))] if near else places


def _vote(rows: list[list[int]]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The way that most rows go on at each fork, of equals the first; and for each of its tokens
    the share of rows that go this way: the product of count(child) / count(node) on the path."""
    tokens: list[int] = []
    shares: list[float] = []
    alive = rows
    while alive:
        # What the least and the greatest have in common, all have.
        least, greatest = min(alive), max(alive)
        fork = begin = len(tokens)
        if least == greatest:
            fork = least.index(END) if END in least else len(least)
        else:
            while least[fork] == greatest[fork] != END:
                fork += 1
        tokens += least[begin:fork]
        shares += [len(alive) / len(rows)] * (fork - begin)
        if least == greatest or least[fork] == END:
            break
        children = Counter([row[fork] for row in alive])
        del children[END]
        child = max(children, key=children.__getitem__)
        alive = [row for row in alive if row[fork] == child]
    return tuple(tokens), tuple(shares)
