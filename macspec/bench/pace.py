"""How long replies take, and so all that are left."""

from __future__ import annotations

LEAST = 3
"""Replies before which nothing is foretold."""


class Pace:
    """Replies that were, and the time of those to come."""

    def __init__(self) -> None:
        self._seconds, self._count = 0.0, 0

    def add(self, seconds: float) -> None:
        """Another reply took so long."""
        self._seconds += seconds
        self._count += 1

    def left(self, replies: int) -> float | None:
        """Seconds of so many replies like those that were; None before there were some."""
        return None if self._count < LEAST else replies * self._seconds / self._count
