"""How a drafter has fared of late."""

from __future__ import annotations

from .plan import BUCKETS

WEIGHT = 0.12
"""Weight of the newest judged token."""

START = 0.6


class RecentAcceptance:
    """A running average over judged tokens, as an offer's bucket.

    Tokens after the first rejected one were never judged, so the average does not depend on how
    deep the rounds were.
    """

    def __init__(self) -> None:
        self._share = START

    @property
    def bucket(self) -> int:
        """0 to ``BUCKETS`` - 1."""
        return min(int(BUCKETS * self._share), BUCKETS - 1)

    def observe(self, drafted: int, accepted: int) -> None:
        """A round drafted so many tokens, of which so many stood."""
        for position in range(min(accepted + 1, drafted)):
            self._share += WEIGHT * ((position < accepted) - self._share)
