"""What happens in a conversation, in the order it happens."""

from __future__ import annotations

from dataclasses import dataclass

from .turns import Piece, Turn


@dataclass(frozen=True, slots=True)
class Began:
    """A reply has begun, or goes on; its text comes in pieces."""

    prompt: Turn | None
    """The new message that it answers; None: an earlier one."""
    reply: Turn


@dataclass(frozen=True, slots=True)
class Told:
    """Something to know, in one neutral line."""

    line: str
    severity: str = "information"
    """information, warning or error."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Which turns of the path the model no longer sees, all of them: the oldest."""

    turns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The reply is over; nothing follows."""

    reply: Turn


@dataclass(frozen=True, slots=True)
class Changed:
    """Numbers of a turn have become known after its end."""

    turn: Turn


Update = Began | Piece | Told | Dropped | Ended | Changed
