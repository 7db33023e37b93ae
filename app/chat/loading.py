"""Loading pairs, and looking after the engine in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from macspec.events import Notice
from macspec.worker import (
    Call,
    EngineClient,
    Failed,
    Loaded,
    LoadProgress,
    PairChoice,
    Status,
)

from ..panel.live import LiveStats
from .settings import Dials

LoadUpdate = Notice | LoadProgress | Loaded | Failed

OFTEN, SELDOM = 1.0, 5.0
"""Seconds between two questions to the engine how it is, in a reply and between replies."""


class Loading:
    """The pair, and how the engine is.

    Args:
        live: told of everything.
        dials: what the engine should have set.
        clock: monotonic seconds.
    """

    def __init__(
        self, engine: EngineClient, live: LiveStats, dials: Dials, clock: Callable[[], float]
    ) -> None:
        self._engine, self._live, self._dials, self._clock = engine, live, dials, clock
        self.choice: PairChoice | None = None
        """The pair that was loaded last."""
        self.coming: PairChoice | None = None
        """The pair that is being loaded; None: none is."""
        self._call: Call | None = None
        self._status: Call | None = None
        self._asked_at, self._told = float("-inf"), 0
        self._lost = True
        """Whether asking the engine how it is would only start one."""

    async def load(
        self, choice: PairChoice, sampling: Mapping[str, Any], ready: Callable[[], None]
    ) -> AsyncIterator[LoadUpdate]:
        """Load a pair, or switch to it.

        Args:
            sampling: what the conversation sets.
            ready: called once it is there.
        """
        self._dials.settle(sampling)
        self._live.loading()
        call = self._call = self._engine.load(choice)
        self.coming = choice
        try:
            async for event in call:
                self._live.see(event)
                if isinstance(event, Loaded):
                    self.choice, self._lost = choice, False
                    self._dials.paired(event.pair)
                    self.look(busy=False, now=True)
                    ready()
                if isinstance(event, Failed):
                    self.lost(event)
                if isinstance(event, Notice | LoadProgress | Loaded | Failed):
                    yield event
        finally:
            self._call = self.coming = None
            if not call.done:
                call.stop()

    @property
    def answering(self) -> PairChoice:
        """The pair that answers what is asked now: loads and replies take their turns."""
        return self.coming or self.choice or PairChoice()

    def cancel(self) -> None:
        """Give up a load that is under way."""
        if self._call is not None:
            self._call.stop()

    def lost(self, failed: Failed) -> None:
        """A call failed: where the engine is gone, it is until the next reply."""
        self._lost = self._lost or failed.kind == "crashed"

    def back(self) -> None:
        """The engine answers."""
        self._lost = False

    def look(self, *, busy: bool, now: bool = False) -> None:
        """Take what the engine has said about itself, and ask again from time to time."""
        if self._status is not None:
            if not self._status.done:
                return
            answer, self._status = self._status.result(), None
            if isinstance(answer, Status):
                self._live.see(answer)
                self._dials.reported(answer.tuning, self._told)
            elif isinstance(answer, Failed) and answer.kind != "refused":
                self.lost(answer)
        due = self._asked_at + (OFTEN if busy else SELDOM) <= self._clock()
        if not self._lost and (due or now):
            self._asked_at, self._told = self._clock(), self._dials.told
            self._status = self._engine.status()
