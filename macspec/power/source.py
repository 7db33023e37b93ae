"""Power sources: what joules are read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ..errors import MacspecError

SMOOTH_LEAST = 0.5
"""Seconds of the shortest window, for a rail that moves all the time."""

BATCHED_LEAST = 5.0
"""The same for a rail that publishes every 2 to 2.3 seconds, like CPU and memory on Apple's chips
(measured on M5 Max and M1 Ultra: lablup/all-smi#412 and #424)."""


class PowerError(MacspecError):
    """A source cannot be read."""


@dataclass(frozen=True, slots=True)
class Rail:
    """One counter of a source."""

    name: str
    """gpu, cpu, dram, ane, or system for the whole machine."""
    batched: bool = False
    """Whether it is constant for seconds and then jumps."""
    wraps_at: float | None = None
    """Joules at which it restarts at 0; None: never."""
    contains: bool = False
    """Whether it includes other rails: it is shown but never added to them."""
    partial: str | None = None
    """Why it counts only part of what its name says: it is shown but never added."""

    @property
    def least(self) -> float:
        """Seconds of the shortest window that can be measured."""
        return BATCHED_LEAST if self.batched else SMOOTH_LEAST

    @property
    def counts(self) -> bool:
        """Whether it is part of the sum."""
        return not self.contains and self.partial is None


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters at one moment."""

    seconds: float
    """Of the monotonic clock."""
    joules: Mapping[str, float]
    """By rail, since some fixed moment; a rail may be missing."""


class PowerSource(Protocol):
    """Cumulative joules of this machine, other programs' included."""

    name: str
    """Its name in the settings."""
    basis: str
    """What its numbers cover, in a few words."""

    @property
    def rails(self) -> tuple[Rail, ...]:
        """Its counters; known once it is available."""

    def available(self) -> str | None:
        """Open it, which may take seconds: None, or why it cannot be used and what to do."""

    def read(self) -> Reading:
        """The counters now, or PowerError if they cannot be read."""

    def close(self) -> None:
        """Close it; may be called more than once."""


class NoSource:
    """Measures nothing and says why."""

    name = "none"
    basis = "nothing is measured"
    rails: tuple[Rail, ...] = ()

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def available(self) -> str | None:
        return self.reason

    def read(self) -> Reading:
        raise PowerError(self.reason)

    def close(self) -> None:
        pass
