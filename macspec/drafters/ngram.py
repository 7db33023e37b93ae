"""Prompt lookup: what followed the last time these tokens were seen (Saxena 2023)."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from ..depth import Offer
from ..errors import BadOptionError
from .drafter import Context, Proposal


class NGram:
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

    def __init__(self, shortest: int = 2, longest: int = 4, copy: int = 32) -> None:
        if not 1 <= shortest <= longest:
            raise BadOptionError(
                f"n-gram window is {shortest} to {longest}; it must be 1 <= shortest <= longest"
            )
        if copy < 1:
            raise BadOptionError(f"n-gram copy is {copy}; it must be at least 1")
        self.sizes = range(longest, shortest - 1, -1)
        self.copy = copy
        self._tokens: list[int] = []
        self._continued: dict[tuple[int, ...], int] = {}

    def offer(self, tokens: Sequence[int]) -> Offer:
        self._read(tokens[len(self._tokens) :])
        start, size = self._match()
        return Offer(
            self.name, self.copy if start is not None else 0, (0, 1, 1, 2, 3)[min(size, 4)]
        )

    def continuation(self, tokens: Sequence[int], depth: int) -> tuple[list[int], list[float]]:
        self._read(tokens[len(self._tokens) :])
        start, _ = self._match()
        if start is None:
            return [], []
        known, end = self._tokens, len(self._tokens)
        copied: list[int] = []
        for source in range(start, start + min(depth, self.copy)):
            # A match that runs into the end of the text repeats: it is a period.
            copied.append(known[source] if source < end else copied[source - end])
        return copied, [0.5] * len(copied)

    def propose(self, context: Context, depth: int) -> Proposal | None:
        copied, _ = self.continuation(context.tokens, depth)
        return Proposal(mx.array(copied, mx.uint32)) if copied else None

    def observe(self, drafted: int, accepted: int) -> None:
        pass

    def rollback(self, length: int) -> None:
        if length < len(self._tokens):
            kept = self._tokens[:length]
            self._tokens, self._continued = [], {}
            self._read(kept)

    def _read(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._tokens.append(token)
            at = len(self._tokens) - 1
            for size in self.sizes:
                if at >= size:
                    self._continued[tuple(self._tokens[at - size : at])] = at

    def _match(self) -> tuple[int | None, int]:
        for size in self.sizes:
            if len(self._tokens) >= size:
                start = self._continued.get(tuple(self._tokens[-size:]))
                if start is not None:
                    return start, size
        return None, 0
