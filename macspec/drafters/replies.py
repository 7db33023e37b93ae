"""Replies of the past, searched through a suffix array."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .places import LONGEST, MOST

END = 2**32 - 1
"""Stands between replies; greater than any token."""

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

        Args:
            limit: most tokens, the marks included; of one longer reply the end is kept.
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

    def nodes(self, tokens: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        """Match lengths with the places that match at least so far, longest match first.

        Each one has more places than the one before, up to the first that has ``MOST``; of more a
        sample, spread over the tokens before. Newest first.
        """
        text, order = self.text, self._order
        tail = tokens[-LONGEST:]
        key = struct.pack(f">{len(tail)}I", *reversed(tail))

        def before(place: int) -> bytes:
            return text[WIDTH * place : WIDTH * place + size]

        size = len(key)
        low = high = bisect_left(order, key, key=before)
        while match := max(self._match(low - 1, key), self._match(high, key)):
            size, part = WIDTH * match, key[: WIDTH * match]
            step = 1
            while low - step >= 0 and before(order[low - step]) == part:
                step *= 2
            low = bisect_left(order, part, max(low - step, 0), low, key=before)
            step = 1
            while high + step < len(order) and before(order[high + step]) == part:
                step *= 2
            high = bisect_right(order, part, high, min(high + step, len(order)), key=before)
            yield match, sorted(order[low : high : -((low - high) // MOST)])
            if high - low >= MOST:
                return

    def column(self, places: Sequence[int], step: int) -> list[int]:
        """The token that comes ``step`` after each place; ``END`` behind the last of a reply.

        Nothing comes after ``END``, so do not ask for it.
        """
        tokens, back = self._tokens, step + 1
        return [tokens[place - back] for place in places]

    def row(self, place: int, depth: int) -> tuple[int, ...]:
        """Up to ``depth`` tokens that followed at a place, as far as the reply goes."""
        row = self._tokens[max(place - depth, 0) : place].tolist()[::-1]
        return tuple(row[: row.index(END)] if END in row else row)

    def _match(self, rank: int, key: bytes) -> int:
        """How many tokens the place of this rank has in common with the key."""
        if not 0 <= rank < len(self._order):
            return 0
        begin = WIDTH * self._order[rank]
        low, high = 0, len(key) // WIDTH
        while low < high:
            middle = (low + high + 1) // 2
            if self.text[begin : begin + WIDTH * middle] == key[: WIDTH * middle]:
                low = middle
            else:
                high = middle - 1
        return low

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
