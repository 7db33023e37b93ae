"""Where the last tokens occurred before: in a growing text, and in past replies."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LONGEST = 64
"""Matches are measured up to this many tokens."""

MOST = 16
"""Places considered for one match length."""

SIZES = (16, 6, 3, 1)
"""Lengths of the indexed runs; matches in between are found from the next shorter run."""

ANCHOR = 6
"""Length of the run that shows where a copy was going on."""

REACH = 8
"""How many tokens ago a copy may have ended."""


class Places:
    """An index of a growing text: for each run of tokens the place after it, and a chain to earlier
    ones.

    A place is a number of tokens: the match lies before it, what followed begins at it. The
    chains are those of LZ77 coders: a token costs four dictionary operations when it is added or
    removed, and about 430 bytes. Runs are identified by a 64-bit hash; a collision costs one bad
    guess.
    """

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens: list[int] = []
        self._latest: dict[int, dict[int, int]] = {size: {} for size in SIZES}
        self._earlier = {size: array("i", [0]) for size in SIZES}
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
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
        """The longest match with the last tokens, 0 if the last one is new, and the latest ``MOST``
        places with it, latest first."""
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
        """The place where a recently ended copy would be now, had it continued.

        After one token was replaced the original goes on there; after insertions, not far off.
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


END = 2**32 - 1
"""Separates replies; greater than any token."""

WIDTH = 4
"""Bytes of a token."""

BATCH = 2**14
"""Tokens that are sorted at once."""

Order = NDArray[np.int32]


class Replies:
    """Replies, newest first, with every place sorted by the tokens before it.

    The text runs backwards: ``END``, the newest reply from its last token to its first, ``END``,
    the one before, ..., ``END``. So the tokens before a place, last one first, are a plain slice
    of bytes (big-endian, which compares as the tokens do), new replies come in front without
    changing how the others sort, and the oldest are cut off at the end. A token takes
    twelve bytes; a search is a few binary searches, whatever the text.

    Args:
        text: the tokens, uint32 big-endian.
        order: the places 0 to n - 1, sorted by the ``LONGEST`` tokens that begin there.
    """

    def __init__(self, text: bytes = struct.pack(">I", END), order: Order | None = None) -> None:
        self.text = text
        self.order: Order = np.zeros(1, np.int32) if order is None else order
        # Items of a memory view are Python's own integers, several times faster to come by.
        self._order = self.order.data
        self._tokens = np.frombuffer(text, ">u4").astype(np.uint32).data

    def __len__(self) -> int:
        """Tokens held, the marks between replies included."""
        return len(self.order)

    def __contains__(self, reply: Sequence[int]) -> bool:
        return self.text.find(_packed([reply]) + _packed([])) >= 0

    def with_new(self, replies: Sequence[Sequence[int]], limit: int) -> Replies:
        """With these replies, oldest first, in front; without the oldest ones beyond the limit.

        Of a reply longer than the limit, which counts the marks too, the end is kept.
        """
        result, batch, held = self, [], 0
        for reply in replies:
            reply = reply[-(limit - 2) :]
            if not reply or reply in result or reply in batch:
                continue
            batch.append(reply)
            held += len(reply)
            if held >= BATCH:
                result, batch, held = result._joined(batch)._cut(limit), [], 0
        return result._joined(batch)._cut(limit)

    def longest(self, tokens: Sequence[int]) -> tuple[int, list[int]]:
        """The longest match with the last of these tokens, 0 for none, and the places with it.

        Newest first; of more than ``MOST`` a sample, spread over the tokens before.
        """
        text, order = self.text, self._order
        tail = tokens[-LONGEST:]
        key = struct.pack(f">{len(tail)}I", *reversed(tail))

        def before(place: int) -> bytes:
            return text[WIDTH * place : WIDTH * place + size]

        size = len(key)
        low = high = bisect_left(order, key, key=before)
        match = max(self._match(low - 1, key), self._match(high, key))
        if not match:
            return 0, []
        size, key = WIDTH * match, key[: WIDTH * match]
        step = 1
        while low - step >= 0 and before(order[low - step]) == key:
            step *= 2
        low = bisect_left(order, key, max(low - step, 0), low, key=before)
        step = 1
        while high + step < len(order) and before(order[high + step]) == key:
            step *= 2
        high = bisect_right(order, key, high, min(high + step, len(order)), key=before)
        return match, sorted(order[low : high : -((low - high) // MOST)])

    def rows(self, places: Sequence[int], depth: int) -> list[list[int]]:
        """Up to ``depth`` tokens that followed at each place; what is behind an ``END`` is of
        another reply."""
        tokens = self._tokens
        return [tokens[max(place - depth, 0) : place].tolist()[::-1] for place in places]

    def _match(self, rank: int, key: bytes) -> int:
        """How many tokens the place of this rank has in common with the key."""
        if not 0 <= rank < len(self._order):
            return 0
        begin = WIDTH * self._order[rank]
        part = self.text[begin : begin + len(key)]
        differing = int.from_bytes(part, "big") ^ int.from_bytes(key[: len(part)], "big")
        return (8 * len(part) - differing.bit_length()) // (8 * WIDTH)

    def _joined(self, replies: Sequence[Sequence[int]]) -> Replies:
        if not replies:
            return self
        text = _packed(replies) + self.text
        new = len(text) // WIDTH - len(self)

        def before(place: int) -> bytes:
            return text[WIDTH * place : WIDTH * (place + LONGEST)]

        places = sorted(range(new), key=before)
        old = self.order + np.int32(new)
        ranks = [bisect_left(old.data, before(place), key=before) for place in places]
        return Replies(text, np.insert(old, ranks, places))

    def _cut(self, limit: int) -> Replies:
        if len(self) <= limit:
            return self
        # What was cut off decided between places before an END only, where no search looks.
        tokens = np.frombuffer(self.text, ">u4", limit)
        kept = int(np.flatnonzero(tokens == END)[-1]) + 1
        return Replies(self.text[: WIDTH * kept], self.order[self.order < kept])


def _packed(replies: Sequence[Sequence[int]]) -> bytes:
    """END and the reversed tokens of each reply, the last one first; END alone for none."""
    tokens = [token for reply in reversed(replies) for token in (END, *reversed(reply))]
    return struct.pack(f">{len(tokens) or 1}I", *(tokens or [END]))
