"""Prompt lookup: what followed the last time these tokens were seen (Saxena 2023)."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import BadOptionError
from .lookup import BUCKETS, ROOM, Continuation, Lookup


class NGram(Lookup):
    """Copies the continuation of the most recent match of the last tokens.

    An index from each run of ``shortest`` to ``longest`` tokens to where it was last continued
    grows with the conversation: a constant number of dictionary operations a token, no scan.

    Args:
        shortest: fewest tokens that must match.
        longest: most tokens that are tried; longer matches are preferred.
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

    def _read(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._tokens.append(token)
            at = len(self._tokens) - 1
            for size in self.sizes:
                if at >= size:
                    self._continued[tuple(self._tokens[at - size : at])] = at

    def _forget(self, length: int) -> None:
        kept = self._tokens[:length]
        self._tokens, self._continued = [], {}
        self._read(kept)

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
        """Where the longest indexed match goes on, and its size; 0, 0 for none."""
        for size in self.sizes:
            if len(self._tokens) >= size:
                start = self._continued.get(tuple(self._tokens[-size:]))
                if start is not None:
                    return start, size
        return 0, 0
