"""Loading pairs, and asking the engine for its status."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from macspec.events import Notice
from macspec.worker import Call, EngineClient, Failed, Loaded, LoadProgress, PairChoice, Status

from ..panel.live import LiveStats
from .settings import LiveSettings

LoadUpdate = Notice | LoadProgress | Loaded | Failed

OFTEN, SELDOM = 1.0, 5.0
"""Seconds between two requests for the engine's status, in a reply and between replies."""


class Loading:
    """The pair that is loaded, and the status of the engine.

    Args:
        live: sees all events.
        clock: monotonic seconds.
        ready: called once a pair is loaded.
    """

    def __init__(
        self,
        engine: EngineClient,
        live: LiveStats,
        settings: LiveSettings,
        clock: Callable[[], float],
        ready: Callable[[], None],
    ) -> None:
        self._engine, self._live, self._settings = engine, live, settings
        self._clock, self._ready = clock, ready
        self.choice: PairChoice | None = None
        """The pair that was loaded last."""
        self.coming: PairChoice | None = None
        """The pair that is being loaded."""
        self._call: Call | None = None
        self._status: Call | None = None
        self._asked_at, self._requests = float("-inf"), 0
        self._lost = True
        """Whether no engine runs, and a request would only start one."""

    async def load(self, choice: PairChoice) -> AsyncIterator[LoadUpdate]:
        """Load a pair, or switch to it: Notice and LoadProgress, then Loaded or Failed."""
        self._settings.sync()
        self._live.loading()
        call = self._call = self._engine.load(choice)
        self.coming = choice
        try:
            async for event in call:
                self._live.see(event)
                if isinstance(event, Loaded):
                    self.choice, self._lost = choice, False
                    self._settings.pair_loaded(event.pair)
                    self.poll(busy=False, now=True)
                    self._ready()
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
        """The pair that answers a request made now: loads and replies are queued."""
        return self.coming or self.choice or PairChoice()

    def cancel(self) -> None:
        """Cancel the load in progress; the pair before stays."""
        if self._call is not None:
            self._call.stop()

    def lost(self, failed: Failed) -> None:
        """A call failed; an engine that crashed is gone until the next reply."""
        self._lost = self._lost or failed.kind == "crashed"

    def back(self) -> None:
        self._lost = False

    def poll(self, *, busy: bool, now: bool = False) -> None:
        """Take the engine's status if it has arrived, and request it again from time to time."""
        if self._status is not None:
            if not self._status.done:
                return
            answer, self._status = self._status.result(), None
            if isinstance(answer, Status):
                self._live.see(answer)
                self._settings.reported(answer.tuning, self._requests)
            elif isinstance(answer, Failed) and answer.kind != "refused":
                self.lost(answer)
        due = self._asked_at + (OFTEN if busy else SELDOM) <= self._clock()
        if not self._lost and (due or now):
            self._asked_at, self._requests = self._clock(), self._settings.requests
            self._status = self._engine.status()
