"""Drafters that copy what followed where the last tokens stood before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from ..choices import MAX_DEPTH
from ..control import Offer
from .drafter import Context, Proposal

ROOM = MAX_DEPTH
"""Most tokens that are copied at once."""

BUCKETS = (2, 3, 4, 6, 9, 16, 32)
"""Lowest score of buckets 1 to 7."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """What followed where the last tokens stood before."""

    tokens: tuple[int, ...] = ()
    shares: tuple[float, ...] = ()
    """Of the places looked at, the share that goes on this way up to each token."""
    match: int = 0
    """How many of the last tokens agree."""

    @property
    def score(self) -> float:
        """Expected number of accepted tokens, among as many as the match is long."""
        return sum(self.shares[: self.match])

    def survival(self, depth: int) -> list[float]:
        """For the first ``depth`` tokens, the chance that each and all before it are right.

        The shares, times Laplace's rule of succession for what has agreed ``match`` times in a
        row. A guess to start from: how it turns out depends on the text.
        """
        sure = self.match + 1
        return [share * sure / (sure + step) for step, share in enumerate(self.shares[:depth], 1)]


class Lookup(ABC):
    """Copies from tokens that it has read; searches once for each new length of the text."""

    name: str

    def __init__(self) -> None:
        self._length = 0
        self._found: Continuation | None = None

    def offer(self, tokens: Sequence[int]) -> Offer:
        found = self._look(tokens)
        return Offer(self.name, len(found.tokens), bisect_right(BUCKETS, found.score))

    def continuation(self, tokens: Sequence[int], depth: int) -> tuple[list[int], list[float]]:
        """What would be proposed, on the host.

        Returns:
            Up to ``depth`` ids, and for each the chance that it and all before it are right.
        """
        found = self._look(tokens)
        return list(found.tokens[:depth]), found.survival(depth)

    def propose(self, context: Context, depth: int) -> Proposal | None:
        ids = list(self._look(context.tokens).tokens[:depth])
        return Proposal(mx.array(ids, mx.uint32)) if ids else None

    def observe(self, came: Sequence[int], drafted: int, stood: int) -> None:  # noqa: B027  (the same for all)
        """What becomes of a copy changes nothing in what is copied next."""

    def rollback(self, length: int) -> None:
        if length < self._length:
            self._forget(length)
            self._length, self._found = length, None

    def _look(self, tokens: Sequence[int]) -> Continuation:
        if self._found is None or len(tokens) > self._length:
            self._read(tokens[self._length :])
            self._length = len(tokens)
            self._found = self._search()
        return self._found

    @abstractmethod
    def _read(self, tokens: Sequence[int]) -> None:
        """The text goes on with these tokens."""

    @abstractmethod
    def _forget(self, length: int) -> None:
        """The text is cut to its first ``length`` tokens."""

    @abstractmethod
    def _search(self) -> Continuation:
        """How the text may go on."""
