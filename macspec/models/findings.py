"""What a survey of the models on this machine tells, in the order it is found out."""

from __future__ import annotations

from dataclasses import dataclass

from .catalog import CONTEXT


@dataclass(frozen=True, slots=True)
class Found:
    """A model that lies on this machine; nothing of it is read yet."""

    name: str
    """Its id on the hub, or its folder as it was given."""
    folder: str
    size: int
    """Bytes on the disk."""
    missing: str | None
    """Why it is not whole, in one sentence; None where it is."""
    stamp: str
    """Another one when its files are others."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Those were all."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is for models, in bytes."""

    memory: int
    limit: int


@dataclass(frozen=True, slots=True)
class Opened:
    """What a model is, as far as that is known without its weights."""

    name: str
    parameters: int | None = None
    context: int | None = None
    """Positions that it was made for; None where it cannot be loaded."""
    memory: int | None = None
    """Bytes that it needs alone at ``positions``."""
    positions: int = CONTEXT
    fits: bool | None = None
    reason: str | None = None
    """Why it cannot be loaded, or runs plain; None where nothing is against it."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A target and a smaller model, and whether that can draft for it."""

    target: str
    draft: str
    reason: str | None
    """Why it cannot, in one sentence; None where it can."""
    memory: int | None
    """Bytes that both need at ``positions``; None where they are no pair."""
    positions: int
    fits: bool | None


Event = Found | Listed | Machine | Opened | Fit

EVENTS: dict[str, type[Event]] = {
    kind.__name__.lower(): kind for kind in (Found, Listed, Machine, Opened, Fit)
}
