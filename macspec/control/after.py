"""How a draft model fares after each token."""

from __future__ import annotations

from collections.abc import Sequence

AHEAD = 3
"""Drafted tokens that are looked at behind each one."""

WEIGHT = 16.0
"""Observations that no difference at all counts for, beside a token's own."""

MEMORY = 50.0
"""Observations of a token that count: older ones fade."""


class AfterToken:
    """How much more or less than usual of a chain stands, by the token that it follows.

    That token is known before anything is drafted: in the middle of a word a draft model is nearly
    always right, after a full stop it is often wrong, or the reply is over. Differences, and not
    shares, so that a text which is easy or hard as a whole says nothing of its tokens. There is at
    most one entry for each token of the vocabulary.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, float]] = {}
        """Of each token, the sum of differences and their number, both decayed."""

    def share(self, token: int, usual: float) -> float:
        """Share of the next tokens drafted after ``token`` that should stand, 0 to 1.

        Args:
            usual: the same after any token, as of late.
        """
        found, count = self._seen.get(token, (0.0, 0.0))
        return min(max(usual + found / (count + WEIGHT), 0.0), 1.0)

    def observe(self, text: Sequence[int], drafted: int, usual: float) -> None:
        """Learn from a chain.

        Args:
            text: the token that it followed, and its own that stood before the end of the reply.
            drafted: tokens of the chain.
            usual: as above, when it was drafted.
        """
        stood = len(text) - 1
        for at, token in enumerate(text[:drafted]):
            ahead = min(AHEAD, drafted - at)
            share = min(stood - at, ahead) / ahead
            found, count = self._seen.get(token, (0.0, 0.0))
            keep = 1 - 1 / MEMORY
            self._seen[token] = found * keep + share - usual, count * keep + 1
