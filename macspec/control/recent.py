"""How a drafter has fared of late."""

from __future__ import annotations

WEIGHT = 0.12
"""Weight of the newest judged token."""

START = 0.6

LONG = 0.01
"""The same weight in the average of a long time."""

BACK = 0.9
"""What is left of the difference between the two after a token that was not judged."""


class RecentAcceptance:
    """A running average over judged tokens.

    Tokens after the first rejected one were never judged, so the average does not depend on how
    deep the rounds were.
    """

    def __init__(self) -> None:
        self._share = self._long = START

    def share(self, unjudged: int = 0) -> float:
        """Share of tokens that stood of late, 0 to 1.

        Args:
            unjudged: tokens that came since, by other means. What was recent is so no longer, and
                the average of a long time takes its place.
        """
        return self._long + (self._share - self._long) * BACK ** max(unjudged, 0)

    def observe(self, drafted: int, accepted: int) -> None:
        """A round drafted so many tokens, of which so many stood."""
        for position in range(min(accepted + 1, drafted)):
            stood = position < accepted
            self._share += WEIGHT * (stood - self._share)
            self._long += LONG * (stood - self._long)
