"""The events of a download, in order, and sizes for people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listed:
    """What will be downloaded, before it starts."""

    models: tuple[str, ...]
    total: int
    """Bytes of all of them."""
    present: int
    """Bytes already in the cache."""
    free: int
    """Bytes free on the cache's disk."""
    licences: tuple[str | None, ...] = ()
    """Of each, as the hub has them; None where it has none."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one model."""

    model: str
    file: str
    done: int
    """Bytes of the model that have arrived."""
    total: int
    rate: float
    """Bytes per second, over the last seconds."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """The connection broke; the download will resume."""

    model: str
    reason: str
    seconds: float
    """Until the next attempt."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """A model is complete, its files checked against the hub's checksums."""

    model: str
    folder: str
    total: int


DownloadEvent = Listed | Progress | Retrying | Pulled


def size(count: float) -> str:
    """Bytes for people, in units of 10**9 as the hub and disks count."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
