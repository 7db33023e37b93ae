"""A turn as a front end shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Span = tuple[int, str | None]
"""So many characters, and the drafter whose guess they were; None: the target's own."""


@dataclass(frozen=True, slots=True)
class TurnStats:
    """The numbers under a reply; None where something was not measured."""

    tokens: int
    tokens_per_s: float | None
    """Of decode."""
    acceptance: float | None
    tokens_per_pass: float | None
    ttft_s: float | None
    joules_per_token: float | None = None
    """Gross, of decode."""
    energy_basis: str = ""
    """What the joules are of, or why there are none."""
    parts: int = 1
    """How often the reply went on, and once more."""
    whole: bool = True
    """Whether these are of all parts; else of the newest one, for the others are not known."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the path that is shown. All text is untrusted."""

    id: int
    """The store's."""
    role: str
    """user, assistant or raw."""
    text: str
    reasoning: str = ""
    spans: Sequence[Span] = ()
    """Who wrote ``text``, in order; empty where that is not known."""
    reasoning_spans: Sequence[Span] = ()
    state: str = "complete"
    """open, complete, stopped or cut off."""
    reason: str | None = None
    """Why a reply ended: end, stop, length, context or interrupted."""
    model: str | None = None
    """The target in a word or two; None for the user's turns."""
    draft: str | None = None
    stats: TurnStats | None = None
    sibling: int = 1
    """Which of ``siblings`` this is, from 1."""
    siblings: int = 1
    dropped: bool = False
    """The model no longer sees it: the history has outgrown its context."""


@dataclass(frozen=True, slots=True)
class Piece:
    """New text of the reply that streams."""

    text: str
    spans: Sequence[Span]
    """Who wrote ``text``; their characters add up to it."""
    reasoning: bool = False
