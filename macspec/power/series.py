"""What one rail's counter said over time: power now, and energy between two moments.

A counter that stands still says nothing: only the moments at which it was seen to move count. Of
a rail that publishes every two seconds, one reading a second shows nothing and then the double;
between two movements, energy over time is the mean power whatever the rhythm
(lablup/all-smi#410, #412).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from .source import Rail

_Move = tuple[float, float]
"""When the counter was seen to move, and the joules until then."""

KEPT = 3600
"""Movements that are remembered: an hour at one a second."""

STRETCHES = 8
"""Stretches before a break that are remembered."""

HOLD = 10.0
"""Seconds that a power is shown after the counter last moved."""

SPAN = {False: 0.9, True: 4.0}
"""Seconds that a power is a mean over, at least, by whether the rail publishes in batches: a
movement is seen up to a second late, and half a batch more or less must not make a jump."""

COVERED = 0.5
"""Share of a window that must lie between two movements."""


class Series:
    """The movements of one rail's counter, in stretches without a break."""

    def __init__(self, rail: Rail) -> None:
        self.rail = rail
        self._raw: float | None = None
        self._joules = 0.0
        self._moves: deque[_Move] = deque(maxlen=KEPT)
        self._earlier: deque[deque[_Move]] = deque(maxlen=STRETCHES)

    def add(self, seconds: float, raw: float) -> bool:
        """Take a reading; False where the counter began anew, which is a break."""
        before, self._raw = self._raw, raw
        if before is None:
            # Where in its batch a counter stands at first is not known.
            if not self.rail.batched:
                self._moves.append((seconds, self._joules))
            return True
        step = raw - before
        if step < 0 and self.rail.wraps_at is not None:
            step += self.rail.wraps_at
            if not 0 <= step < self.rail.wraps_at / 2:
                step = -1.0
        if step < 0:
            self.restart()
            self._raw = raw
            return False
        if step > 0 and self._moves and seconds <= self._moves[-1][0]:
            self._raw = before  # two readings of one moment: the next one shows it
        elif step > 0:
            self._joules += step
            self._moves.append((seconds, self._joules))
        return True

    def restart(self) -> None:
        """A break: nothing is known across it, and the next reading is the first."""
        self._raw = None
        self._earlier.append(self._moves)
        self._moves = deque(maxlen=KEPT)

    @property
    def moved(self) -> float | None:
        """When it last moved."""
        return self._moves[-1][0] if self._moves else None

    def watts(self, now: float) -> float | None:
        """Mean power between its last movements; None where it has not moved lately."""
        if len(self._moves) < 2 or now - self._moves[-1][0] > HOLD:
            return None
        end, joules = self._moves[-1]
        for start, before in reversed(self._moves):
            if end - start >= SPAN[self.rail.batched]:
                return (joules - before) / (end - start)
        return None

    def joules(self, start: float, end: float) -> float | None:
        """Energy of a window, None where too little of it lies between two movements.

        What lies outside is charged with the mean power of what lies inside.
        """
        for moves in (self._moves, *self._earlier):
            if len(moves) < 2:
                continue
            low, high = max(start, moves[0][0]), min(end, moves[-1][0])
            if high > low and high - low >= COVERED * (end - start):
                inside = _at(moves, high) - _at(moves, low)
                return inside * (end - start) / (high - low)
        return None


def _at(moves: Sequence[_Move], seconds: float) -> float:
    """The counter at a moment between the first and the last movement, in a straight line."""
    place = min(bisect_right(moves, seconds, key=lambda move: move[0]), len(moves) - 1)
    (start, low), (end, high) = moves[place - 1], moves[place]
    return low + (high - low) * (seconds - start) / (end - start)
