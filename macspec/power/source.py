"""What joules are read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ..errors import MacspecError

SMOOTH_LEAST = 0.5
"""Seconds of a window below which even a rail that moves all the time is not worth a number."""

BATCHED_LEAST = 5.0
"""The same where a rail publishes every 2 to 2.3 seconds, as the CPU's and the memory's do on
Apple's chips (measured on M5 Max and M1 Ultra: lablup/all-smi#412 and #424)."""


class PowerError(MacspecError):
    """A source could not be read."""


@dataclass(frozen=True, slots=True)
class Rail:
    """One counter of a source."""

    name: str
    """gpu, cpu, dram, ane, or system for the whole machine."""
    batched: bool = False
    """Whether it stands still for seconds and then moves by all of them at once."""
    wraps_at: float | None = None
    """Joules at which it begins again at 0; None where it does not."""
    contains: bool = False
    """Whether it holds what other rails count too: it is shown and never added to them."""
    partial: str | None = None
    """Why it counts only a part of what its name says; it is then shown and never added."""

    @property
    def least(self) -> float:
        """Seconds of the shortest window that the rail says something about."""
        return BATCHED_LEAST if self.batched else SMOOTH_LEAST

    @property
    def counts(self) -> bool:
        """Whether it is a part of the sum."""
        return not self.contains and self.partial is None


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters at one moment."""

    seconds: float
    """Of the monotonic clock."""
    joules: Mapping[str, float]
    """By rail, since some moment that stays the same; a rail may be missing."""


class PowerSource(Protocol):
    """Cumulative joules of this machine. All of them: other programs' too."""

    @property
    def name(self) -> str:
        """Its name in the settings."""

    @property
    def basis(self) -> str:
        """What its numbers are, in a few words."""

    @property
    def rails(self) -> tuple[Rail, ...]:
        """Its counters; known once it is available."""

    def available(self) -> str | None:
        """Open it: None, or why it cannot be used and what to do, in one sentence.

        May take seconds.
        """

    def read(self) -> Reading:
        """The counters now.

        Raises:
            PowerError: they cannot be read.
        """

    def close(self) -> None:
        """Let it go; may be called more than once."""


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
