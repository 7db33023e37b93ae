"""What is going on, as far as it decides which actions make sense."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

REASONS = {
    "busy": "no reply is being written",
    "working": "nothing is under way that could be stopped",
    "idle": "a reply is being written: Esc stops it",
    "turns": "nothing has been said yet",
    "replied": "there is no reply yet",
    "chat": "this conversation is kept with its first message",
}


@dataclass(frozen=True, slots=True)
class Situation:
    """A snapshot of a conversation."""

    busy: bool = False
    """A reply streams, or is about to."""
    loading: bool = False
    """A pair is on its way."""
    turns: bool = False
    """Something was said."""
    replied: bool = False
    """There is a reply."""
    chat: bool = False
    """It is in the store."""

    @property
    def idle(self) -> bool:
        """No reply streams."""
        return not self.busy

    @property
    def working(self) -> bool:
        """There is something to stop."""
        return self.busy or self.loading

    def lacks(self, needs: Iterable[str]) -> str | None:
        """Why what needs all that cannot be done, in one line; None: it can."""
        return next((REASONS[need] for need in needs if not getattr(self, need)), None)
