"""Where the last tokens of a growing text stood before."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

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

    def longest(self) -> tuple[int, list[int]]:
        """The longest match with the last tokens, and the places with it: the latest ``MOST``.

        Latest first; none, and a match of 0, if the last token is new.
        """
        tokens, end, most = self.tokens, len(self.tokens), LONGEST
        for size in SIZES:
            places = self._chain(size)
            if size == SIZES[0]:
                tail = tokens[-LONGEST:]
                if whole := [place for place in places if tokens[place - LONGEST : place] == tail]:
                    return LONGEST, whole
            match, further = size - 1, places
            while further:
                match, places = match + 1, further
                if match == most:
                    break
                token = tokens[end - 1 - match]
                further = [p for p in places if p > match and tokens[p - 1 - match] == token]
            if places:
                return match, places
            most = size - 1
        return 0, []

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

    def rows(self, places: Sequence[int], depth: int) -> list[list[int]]:
        """The ``depth`` tokens from each place; one that meets the end is a period and goes on."""
        rows = [self.tokens[place : place + depth] for place in places]
        return [
            row if len(row) == depth else (row * (depth // len(row) + 1))[:depth] for row in rows
        ]

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
