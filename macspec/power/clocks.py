"""Whether time passed that a running program did not see."""

from __future__ import annotations

import time
from collections.abc import Callable

JUMP = 1.0
"""Seconds by which the clocks may part between two looks before it counts as a jump."""


class ClockWatch:
    """Compares the wall clock with the monotonic one, which stands still while a machine sleeps.

    Args:
        clock: monotonic seconds.
        wall: seconds of the calendar.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._clock, self._wall = clock, wall
        self._last = clock(), wall()

    def jumped(self) -> bool:
        """True if the machine slept, or its clock was set, since the last call."""
        before, self._last = self._last, (self._clock(), self._wall())
        seconds, wall = (now - then for now, then in zip(self._last, before, strict=True))
        return abs(wall - seconds) > JUMP
