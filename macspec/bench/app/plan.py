"""What of the app is measured, and how much of it. Nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass

SPEED, CORE, START, KEYS, FREEZES = PARTS = ("speed", "core", "start", "keys", "freezes")
"""What can be measured alone."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured, and how much of it."""

    parts: tuple[str, ...] = PARTS
    repeats: int = 5
    seconds: float = 4.0
    """In which the share of a core is taken, with the panel and without it."""
    keys: int = 24
    """Pressed in each repeat."""
    characters: int = 200_000
    """Of the huge reply."""
    line: int = 5_000
    """Characters of the long line."""
    turns: int = 40
    """Earlier ones."""
    fit: bool = True
    """Whether replies are made longer where decoding is fast."""
    settle: float = 0.7
    """Seconds after a change until what it leaves to do is done."""
