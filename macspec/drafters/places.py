"""Where the last tokens of a growing text stood before."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

LONGEST = 64
"""Matches are measured up to this many tokens."""

MOST = 16
"""Places that are looked at for one match length."""

SIZES = (16, 6, 3, 1)
"""Runs of this many tokens are indexed; matches in between are found from the next shorter run."""

ANCHOR = 6
"""Run that shows where a copy was going on."""

REACH = 8
"""How many tokens a copy may have been left behind."""


class Places:
    """For each indexed run of tokens the place after it, and a chain to the places before.

    A place is a number of tokens: the match lies before it, what followed begins at it. The
    chains are those of LZ77 coders: a token costs four dictionary operations when it comes and
    when it goes, and about 430 bytes while it stands (43 MB for 100,000 tokens). Runs are told
    apart by a 64-bit hash; should two ever collide, the guess is a bad one and nothing worse.
    """

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens: list[int] = []
        self._latest: dict[int, dict[int, int]] = {size: {} for size in SIZES}
        self._earlier = {size: array("i", [0]) for size in SIZES}
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """The text goes on with these tokens."""
        begin = len(self.tokens) + 1
        self.tokens += tokens
        for size in SIZES:
            latest, earlier = self._latest[size], self._earlier[size]
            for place in range(begin, len(self.tokens) + 1):
                run = self._run(size, place)
                earlier.append(latest.get(run, 0))
                latest[run] = place

    def cut(self, length: int) -> None:
        """The text is cut to its first ``length`` tokens."""
        for size in SIZES:
            latest, earlier = self._latest[size], self._earlier[size]
            for place in range(len(self.tokens), length, -1):
                run, before = self._run(size, place), earlier.pop()
                if before:
                    latest[run] = before
                else:
                    del latest[run]
        del self.tokens[length:]

    def nodes(self) -> Iterator[tuple[int, list[int]]]:
        """Match lengths with places that match at least so far, longest match first.

        Each one has more places than the one before, up to the first that has ``MOST``; of more
        the latest. Latest first.
        """
        count, longest = 0, LONGEST
        for size in SIZES:
            places = self._chain(size)
            matches = [self._match(place, size, longest) for place in places]
            for match in sorted(set(matches), reverse=True):
                node = [p for p, length in zip(places, matches, strict=True) if length >= match]
                if len(node) > count:
                    yield match, node
                    count = len(node)
            longest = size - 1

    def anchor(self) -> int | None:
        """Where the text would stand now if a copy that ended lately had gone on.

        After one token was replaced the original goes on after its own; after some were put in
        or left out, not far from there.
        """
        earlier, end = self._earlier[ANCHOR], len(self.tokens)
        for back in range(1, min(REACH, end) + 1):
            if earlier[end - back]:
                return earlier[end - back] + back
        return None

    def column(self, places: Sequence[int], step: int) -> list[int]:
        """The token that comes ``step`` after each place, as in its row."""
        tokens, end = self.tokens, len(self.tokens)
        return [
            tokens[place + step if place + step < end else place + step % (end - place)]
            for place in places
        ]

    def row(self, place: int, depth: int) -> tuple[int, ...]:
        """The ``depth`` tokens from a place; one that meets the end is a period and goes on."""
        row = self.tokens[place : place + depth]
        if len(row) < depth:
            row = (row * (depth // len(row) + 1))[:depth]
        return tuple(row)

    def _run(self, size: int, place: int) -> int:
        # Runs that begin before the text does are shorter, so they equal no other.
        if size == 1:
            return self.tokens[place - 1]
        return hash(tuple(self.tokens[max(place - size, 0) : place]))

    def _chain(self, size: int) -> list[int]:
        earlier = self._earlier[size]
        places: list[int] = []
        place = earlier[-1]
        while place and len(places) < MOST:
            places.append(place)
            place = earlier[place]
        return places

    def _match(self, place: int, size: int, longest: int) -> int:
        tokens, end = self.tokens, len(self.tokens)
        longest = min(longest, place)
        if size == SIZES[0] and tokens[place - longest : place] == tokens[end - longest :]:
            return longest
        match = size
        while match < longest and tokens[place - 1 - match] == tokens[end - 1 - match]:
            match += 1
        return match
