"""The state of one reply, from its prompt to its last token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .stats import ReplyCounter
from .text import Piece, TextStream, joined


@dataclass(slots=True)
class Reply:
    """What was emitted so far, and whether it is over."""

    stream: TextStream
    stop_ids: frozenset[int]
    limit: int
    """Most tokens that may be emitted."""
    limit_reason: str
    """What it means to reach it: length or context."""
    seed: int
    counter: ReplyCounter
    started: float
    """When it was asked for, by the decoder's clock."""
    passes: int = 0
    """Passes launched, landed or not; makes the noise of each one its own."""
    forced: Sequence[int] | None = None
    """The tokens to emit, whatever the target says; ``limit`` is their number."""
    learn: bool = True
    """Whether past replies are drafted from, and this one becomes one of them."""
    ids: list[int] = field(default_factory=list)
    reason: str | None = None
    """Why the reply is over; None while it is not."""

    def take(
        self, tokens: Sequence[int], accepted: int = 0, drafter: str | None = None
    ) -> tuple[list[int], list[Piece]]:
        """Take the tokens of a round up to where the reply ends, wherever in the block that is.

        Args:
            accepted: how many of them were guesses of the drafter.

        Returns:
            The tokens that count, and the text that they settle.
        """
        kept: list[int] = []
        pieces: list[Piece] = []
        for token in tokens:
            guess = drafter if len(kept) < accepted else None
            kept.append(token)
            if token in self.stop_ids:
                self.reason = "end"
            else:
                pieces += self.stream.push(token, guess)
                if self.stream.stopped:
                    self.reason = "stop"
                elif len(self.ids) + len(kept) >= self.limit:
                    self.reason = self.limit_reason
            if self.reason is not None:
                pieces += self.stream.finish()
                break
        self.ids += kept
        return kept, joined(pieces)
