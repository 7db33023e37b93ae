"""What a source said so far: windows of it, what makes them void, and the idle baseline."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .energy import Energy
from .idle import Idle
from .series import HOLD, Series
from .source import PowerSource, Reading

GAP = 10.0
"""Seconds without a reading after which a window is void."""

REST_BEGINS = 3.0
"""Seconds after the last work until the chip is taken to be idle."""

REST_LEAST = 5.0
"""Seconds of idleness that a baseline needs; the last ``REST_MOST`` are used."""

REST_MOST = 60.0


@dataclass(frozen=True, slots=True)
class Watts:
    """One rail now."""

    watts: float | None
    reason: str | None
    """Why there is none."""


@dataclass(frozen=True, slots=True)
class _Void:
    start: float
    end: float
    reason: str


class History:
    """The readings of one source.

    Args:
        source: open, or one that says why it is not.
        wall: seconds of the calendar.
        idle: a baseline that is known already.
    """

    def __init__(
        self, source: PowerSource, wall: Callable[[], float], idle: Idle | None = None
    ) -> None:
        self.source, self._wall = source, wall
        self.idle = idle if idle is not None and idle.source == source.name else None
        """What the machine takes when nothing computes."""
        self.read: float | None = None
        """When the last reading was."""
        self._series = [Series(rail) for rail in source.rails]
        self._voids: list[_Void] = []

    def add(self, reading: Reading, jumped: bool) -> None:
        """Take a reading; ``jumped``: the clocks parted since the last one."""
        before, self.read = self.read, reading.seconds
        if jumped:
            self._break(before, reading.seconds, "the machine slept or its clock was set")
        elif before is not None and reading.seconds - before > GAP:
            gap = reading.seconds - before
            self._break(before, reading.seconds, f"no reading for {gap:.0f} s")
        for series in self._series:
            raw = reading.joules.get(series.rail.name)
            if raw is not None and not series.add(reading.seconds, raw):
                why = f"the counter of {series.rail.name} began anew"
                self._voids.append(_Void(_since(before), reading.seconds, why))

    def die(self, reason: str) -> None:
        """There will be no more readings."""
        self._voids.append(_Void(_since(self.read), math.inf, reason))

    def void(self, start: float, end: float) -> str | None:
        """Why a window has no joules whatever its rails did; None where it may have."""
        for void in self._voids:
            if void.start < end and start < void.end:
                return void.reason
        return None

    def watts(self, now: float) -> dict[str, Watts]:
        """Every rail now."""
        dead = self.void(now, math.inf)
        shown = {}
        for series in self._series:
            watts = None if dead is not None else series.watts(now)
            reason = None if watts is not None else dead or _standing(series, now)
            shown[series.rail.name] = Watts(watts, reason)
        return shown

    def energy(self, start: float, end: float, tokens: int) -> Energy:
        """What a window took; ``tokens`` is what it brought."""
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
                missing[rail.name] = rail.partial or "holds the other rails"
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
            idle={} if self.idle is None else self.idle.watts,
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
        """Nothing computed in this time: take the baseline from it, if it was long enough."""
        start = max(since + REST_BEGINS, now - REST_MOST)
        if now - start < REST_LEAST or self.void(since, now) is not None:
            return
        joules = {series.rail.name: series.joules(start, now) for series in self._series}
        watts = {name: each / (now - start) for name, each in joules.items() if each is not None}
        if watts:
            self.idle = Idle(self.source.name, watts, now - start, self._wall())

    def _break(self, before: float | None, now: float, reason: str) -> None:
        self._voids.append(_Void(_since(before), now, reason))
        for series in self._series:
            series.restart()

    def _why_nothing(self, seconds: float) -> str:
        least = [series.rail.least for series in self._series if series.rail.counts]
        if least and seconds < min(least):
            return f"{seconds:.1f} s are too short to measure"
        return "no counter moved" if least else "only a part of the chip is counted"


def _since(before: float | None) -> float:
    return -math.inf if before is None else before


def _standing(series: Series, now: float) -> str:
    if series.moved is None:
        return "has not moved yet"
    if now - series.moved > HOLD:
        return f"has not moved for {now - series.moved:.0f} s"
    return "is being measured"
