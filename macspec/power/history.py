"""What a source reported over time: power now, energy of windows, and the idle baseline.

Only the moments at which a counter was seen to move count. A rail that publishes every two seconds
looks idle in one reading and doubled in the next; between two movements, energy over time is the
mean power whatever the rhythm (lablup/all-smi#410, #412).
"""

from __future__ import annotations

import json
import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ..config.paths import state_folder
from ..io import read_json, write_atomic
from .energy import Energy
from .source import PowerSource, Rail, Reading

IDLE_AGE = 24 * 3600.0
"""Seconds after which a stored baseline is too old."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Power without any work, by which gross and net energy differ."""

    source: str
    watts: Mapping[str, float]
    """By rail, of the rails that moved."""
    seconds: float
    """How long it was measured."""
    at: float
    """When, in seconds since 1970."""


def remembered_idle(folder: Path | None = None, now: float | None = None) -> Idle | None:
    """The baseline of an earlier session, unless it is too old at ``now`` (since 1970)."""
    try:
        record = read_json(_file(folder))
        watts = {str(rail): float(value) for rail, value in record["watts"].items()}
        idle = Idle(str(record["source"]), watts, float(record["seconds"]), float(record["at"]))
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        return None
    age = (time.time() if now is None else now) - idle.at
    return idle if 0 <= age <= IDLE_AGE else None


def remember_idle(idle: Idle, folder: Path | None = None) -> None:
    """Keep a baseline for later sessions, if possible."""
    with suppress(OSError):
        write_atomic(_file(folder), json.dumps(asdict(idle)), make_folder=True)


def _file(folder: Path | None) -> Path:
    return (folder or state_folder()) / "idle.json"


_Move = tuple[float, float]
"""When the counter was seen to move, and its joules until then."""

KEPT = 3600
"""Movements that are kept: an hour at one per second."""

STRETCHES = 8
"""Stretches before a break that are kept."""

HOLD = 10.0
"""Seconds for which a power is shown after the counter last moved."""

SPAN = {False: 0.9, True: 4.0}
"""Seconds over which power is averaged, at least, by whether the rail publishes in batches: a
movement is seen up to a second late, and half a batch must not look like a jump."""

COVERED = 0.5
"""Share of a window that must be between two movements."""


class Series:
    """The movements of one rail's counter, in stretches without breaks."""

    def __init__(self, rail: Rail) -> None:
        self.rail = rail
        self._raw: float | None = None
        self._joules = 0.0
        self._moves: deque[_Move] = deque(maxlen=KEPT)
        self._earlier: deque[deque[_Move]] = deque(maxlen=STRETCHES)

    def add(self, seconds: float, raw: float) -> bool:
        """Add a reading; False: the counter was reset, which is a break."""
        before, self._raw = self._raw, raw
        if before is None:
            # How old the first reading of a batched counter is, is unknown.
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
            self._raw = before  # two readings at one moment: the next one counts it
        elif step > 0:
            self._joules += step
            self._moves.append((seconds, self._joules))
        return True

    def restart(self) -> None:
        """Begin a new stretch, whose first reading is the next one."""
        self._raw = None
        self._earlier.append(self._moves)
        self._moves = deque(maxlen=KEPT)

    @property
    def moved(self) -> float | None:
        """When it last moved."""
        return self._moves[-1][0] if self._moves else None

    def watts(self, now: float) -> float | None:
        """Mean power between its last movements; None: it has not moved lately."""
        if len(self._moves) < 2 or now - self._moves[-1][0] > HOLD:
            return None
        end, joules = self._moves[-1]
        for start, before in reversed(self._moves):
            if end - start >= SPAN[self.rail.batched]:
                return (joules - before) / (end - start)
        return None

    def joules(self, start: float, end: float) -> float | None:
        """Energy of a window; None: too little of it is between two movements.

        The rest of the window is counted with the mean power of that part.
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
    """The counter at a moment between two movements, by linear interpolation."""
    place = min(bisect_right(moves, seconds, key=lambda move: move[0]), len(moves) - 1)
    (start, low), (end, high) = moves[place - 1], moves[place]
    return low + (high - low) * (seconds - start) / (end - start)


GAP = 10.0
"""Seconds without a reading after which a window is void."""

REST_BEGINS = 3.0
"""Seconds after the last work until the chip counts as idle."""

REST_LEAST = 5.0
"""Idle seconds that a baseline needs; the last ``REST_MOST`` are used."""

REST_MOST = 60.0


_Void = tuple[float, float, str]
"""Begin and end of a time without valid readings, and why."""


class History:
    """The readings of one source, which is open or says why it is not."""

    def __init__(
        self, source: PowerSource, wall: Callable[[], float], idle: Idle | None = None
    ) -> None:
        self.source, self._wall = source, wall
        self.idle = idle if idle is not None and idle.source == source.name else None
        """The baseline."""
        self.read: float | None = None
        """When the last reading was."""
        self._series = [Series(rail) for rail in source.rails]
        self._voids: list[_Void] = []

    def add(self, reading: Reading, jumped: bool) -> None:
        """Add a reading; ``jumped``: the machine slept since the last one."""
        before, self.read = self.read, reading.seconds
        if jumped:
            self._break(before, reading.seconds, "the machine slept or its clock was set")
        elif before is not None and reading.seconds - before > GAP:
            gap = reading.seconds - before
            self._break(before, reading.seconds, f"no reading for {gap:.0f} s")
        for series in self._series:
            raw = reading.joules.get(series.rail.name)
            if raw is not None and not series.add(reading.seconds, raw):
                why = f"the counter of {series.rail.name} was reset"
                self._void_from(before, reading.seconds, why)

    def die(self, reason: str) -> None:
        """Void everything from now on: there will be no more readings."""
        self._void_from(self.read, math.inf, reason)

    def void(self, start: float, end: float) -> str | None:
        """Why a window has no joules at all; None: it may have."""
        for begin, until, reason in self._voids:
            if begin < end and start < until:
                return reason
        return None

    def watts(self, now: float) -> dict[str, float]:
        """Power now, of every rail that moves."""
        if self.void(now, math.inf) is not None:
            return {}
        watts = {series.rail.name: series.watts(now) for series in self._series}
        return {rail: value for rail, value in watts.items() if value is not None}

    def energy(self, start: float, end: float, tokens: int) -> Energy:
        """Energy of a window in which this many tokens were generated."""
        seconds = end - start
        reason = self.void(start, end)
        rails, counted, missing = {}, [], {}
        for series in self._series if reason is None else ():
            rail = series.rail
            joules = series.joules(start, end) if seconds >= rail.least else None
            if joules is None:
                short = seconds < rail.least
                missing[rail.name] = f"needs {rail.least:g} s" if short else "did not move"
                continue
            rails[rail.name] = joules
            if rail.counts:
                counted.append(rail.name)
            else:
                missing[rail.name] = rail.partial or "includes the other rails"
        if reason is None and not counted:
            reason = self._why_nothing(seconds)
        return Energy(
            seconds=seconds,
            tokens=tokens,
            source=self.source.name,
            basis=self.source.basis,
            rails=rails,
            counted=tuple(counted),
            missing=missing,
            idle_watts={} if self.idle is None else self.idle.watts,
            reason=reason,
        )

    def settled(self, start: float, end: float) -> bool:
        """Whether every rail that moved in a window has moved after it too."""
        if self.void(start, end) is not None:
            return True
        moved = [
            series.moved
            for series in self._series
            if series.moved is not None and end - start >= series.rail.least
        ]
        read = self.read is not None and self.read >= end
        return read and all(at >= end or at < start for at in moved)

    def rested(self, since: float, now: float) -> None:
        """Take the baseline from a time without work, if it was long enough."""
        start = max(since + REST_BEGINS, now - REST_MOST)
        if now - start < REST_LEAST or self.void(since, now) is not None:
            return
        joules = {series.rail.name: series.joules(start, now) for series in self._series}
        watts = {name: each / (now - start) for name, each in joules.items() if each is not None}
        if watts:
            self.idle = Idle(self.source.name, watts, now - start, self._wall())

    def _break(self, before: float | None, now: float, reason: str) -> None:
        self._void_from(before, now, reason)
        for series in self._series:
            series.restart()

    def _void_from(self, before: float | None, until: float, reason: str) -> None:
        self._voids.append((-math.inf if before is None else before, until, reason))

    def _why_nothing(self, seconds: float) -> str:
        least = [series.rail.least for series in self._series if series.rail.counts]
        if least and seconds < min(least):
            return f"{seconds:.1f} s is too short to measure"
        return "no counter moved" if least else "only a part of the chip is counted"
