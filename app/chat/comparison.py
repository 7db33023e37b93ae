"""What a comparison of plain and speculative decoding has found so far, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Way:
    """One of the two ways to decode, over its replies so far."""

    replies: int = 0
    """Those that are over."""
    tokens: int | None = None
    """Of each."""
    tokens_per_s: float | None = None
    """Median over the replies; of the one under way while there is no other."""
    ttft_s: float | None = None
    tokens_per_pass: float | None = None
    acceptance: float | None = None
    joules_per_token: float | None = None
    """Gross, of decode."""


@dataclass(frozen=True, slots=True)
class Fork:
    """Where the two texts part. All text is untrusted."""

    token: int
    """How many tokens are equal before it."""
    before: str
    """The end of what both have."""
    plain: str
    """How the plain reply goes on; empty: it ends there."""
    speculative: str
    gap: float | None = None
    """Between the scores of the two tokens, where it was looked at."""
    near_tie: bool = False
    """Whether rounding explains it."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A snapshot."""

    prompt: str = ""
    """The message that is answered again. Untrusted."""
    rule: str = "greedy"
    """greedy, keyed (both with one seed), block or match."""
    drafting: str = ""
    """How the speculative replies draft, in a word or two."""
    planned: int = 0
    """Replies in all, both ways together; they take turns."""
    doing: str = ""
    """plain or speculative: the reply under way; empty: none."""
    progress: float | None = None
    """Of that reply, 0 to 1, where its length is known."""
    plain: Way = field(default_factory=Way)
    speculative: Way = field(default_factory=Way)
    equal: bool | None = None
    """Whether both have the same text; None: not known yet, or nothing to expect of this rule."""
    fork: Fork | None = None
    energy_reason: str = ""
    """Why there are no joules; empty where there are."""
    notes: Sequence[str] = ()
    """What else is worth knowing, each a line."""
    finished: bool = False
