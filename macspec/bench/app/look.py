"""What an app took from one look at it to the next."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """Times in seconds."""

    wall: float
    core: float
    """Of the processor, by all threads of the app's process."""
    worst: float
    """Longest that the event loop kept a timer waiting; 0 where nothing looked at that."""
    busy: float
    """Most of the process's own time in such a wait."""
    writing: bool
    """Whether a reply is being written at its end."""

    @property
    def share(self) -> float:
        """Of one core."""
        return self.core / self.wall if self.wall > 0 else 0.0
