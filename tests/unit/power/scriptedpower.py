"""A source that plays a script on a clock that the test turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from macspec.power.source import PowerError, Rail, Reading


@dataclass
class World:
    """The clocks of a machine."""

    now: float = 1000.0
    asleep: float = 0.0
    """Seconds that the monotonic clock did not see."""

    def clock(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1.7e9 + self.now + self.asleep


@dataclass
class Script:
    """What one rail's counter shows."""

    joules: Callable[[float], float]
    """What was really used up to a moment."""
    period: float = 0.0
    """Seconds between two publications; 0: always up to date."""
    phase: float = 0.0
    wraps_at: float | None = None

    def shown(self, now: float) -> float:
        if self.period:
            now = (now - self.phase) // self.period * self.period + self.phase
        joules = self.joules(now)
        return joules % self.wraps_at if self.wraps_at is not None else joules


def steady(watts: float, offset: float = 0.0) -> Callable[[float], float]:
    """Constant power."""
    return lambda now: watts * now + offset


@dataclass
class Scripted:
    """A source for tests."""

    world: World
    scripts: Mapping[str, Script]
    rails: tuple[Rail, ...]
    name: str = "scripted"
    basis: str = "the whole script"
    dies: Callable[[float], bool] = lambda now: False
    hidden: Callable[[str, float], bool] = lambda rail, now: False
    closed: bool = False
    reads: list[float] = field(default_factory=list)

    def available(self) -> str | None:
        return None

    def read(self) -> Reading:
        now = self.world.clock()
        self.reads.append(now)
        if self.dies(now):
            raise PowerError("gone")
        shown = {
            name: script.shown(now)
            for name, script in self.scripts.items()
            if not self.hidden(name, now)
        }
        return Reading(now, shown)

    def close(self) -> None:
        self.closed = True
