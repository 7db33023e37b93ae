"""What every front end asks an engine for."""

from __future__ import annotations

from typing import Any, Protocol

from .call import Call
from .messages import PairChoice, ReplyRequest


class EngineClient(Protocol):
    """An engine that holds one pair and answers one request after the other.

    Methods may be called from any thread and do not wait: each returns a ``Call`` whose last event
    is the one named here, or ``Failed``. Loads, replies and unloads take their turns; tuning and
    status come between two rounds of a reply that is under way.
    """

    def start(self) -> None:
        """Get ready, so that the first load finds a warm engine."""
        ...

    def load(self, choice: PairChoice) -> Call:
        """Load a pair, or switch to it: Notice, LoadProgress, then Loaded.

        Until the new pair is known to fit, the old one stays; if the new one fails, the old one
        goes on. What the target has read stays where only the draft model is another one.
        """
        ...

    def unload(self) -> Call:
        """Let go of the pair: Unloaded."""
        ...

    def reply(self, request: ReplyRequest) -> Call:
        """Answer a conversation: the events of ``Session.reply``, then Finished.

        An engine that was lost is started again first, with its last pair: that call begins with
        the events of ``load``.
        """
        ...

    def tune(self, **changes: Any) -> Call:
        """Change ``method``, ``depth``, ``rule`` or fields of ``sampling``: Tuned."""
        ...

    def status(self) -> Call:
        """How things are: Status."""
        ...

    def weigh(self, request: ReplyRequest, said: tuple[int, ...], tokens: tuple[int, ...]) -> Call:
        """How close the choice after the first tokens of a reply was: Weighed.

        Args:
            request: what the reply answered; rule and sampling are those that are set now.
            said: the tokens of the reply before the choice.
            tokens: those that were chosen there, one way and another.
        """
        ...

    def interrupt(self) -> None:
        """End every reply within one round; each ends with Finished and keeps its text.

        One that has not begun yet ends with Failed of kind stopped.
        """
        ...

    def close(self) -> None:
        """Keep what was learned and end the engine. Further calls are refused."""
        ...
