"""What front ends hold: an engine to ask, and calls, the streams of events that answer."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..events import Text
from .messages import (
    Answer,
    Command,
    CountTokens,
    Failed,
    GetStatus,
    MeasureMargin,
    PairChoice,
    ReplyRequest,
    Tune,
)


class EngineClient(ABC):
    """An engine that holds one pair and answers one request after the other.

    Methods may be called from any thread and do not wait: each returns a ``Call`` whose last event
    is the one named here, or ``Failed``. Loads and replies queue up; tuning and status are
    answered between two rounds of a reply.
    """

    @abstractmethod
    def start(self) -> None:
        """Get ready, so that the first load finds a warm engine."""

    @abstractmethod
    def ask(self, command: Command) -> Call:
        """Send a command; the methods below do."""

    @abstractmethod
    def interrupt(self) -> None:
        """End every reply within one round; each ends with Finished and keeps its text.

        A reply that has not begun ends with Failed of kind stopped.
        """

    @abstractmethod
    def close(self) -> None:
        """Save what was learned and end the engine. Later calls are refused."""

    def load(self, choice: PairChoice) -> Call:
        """Load a pair, or switch to it: Notice, LoadProgress, then Loaded.

        The old pair stays until the new one is known to fit, and comes back if that fails. If only
        the draft model changes, the target keeps what it has read.
        """
        return self.ask(choice)

    def reply(self, request: ReplyRequest) -> Call:
        """Answer a conversation: the events of ``Session.reply``, then Finished.

        An engine that was lost is restarted with its last pair first; the call then begins with the
        events of ``load``.
        """
        return self.ask(request)

    def tune(self, **changes: Any) -> Call:
        """Change ``method``, ``depth``, ``rule`` or fields of ``sampling``: Tuned."""
        return self.ask(Tune(changes))

    def status(self) -> Call:
        """The engine's state: Status."""
        return self.ask(GetStatus())

    def score_margin(
        self, request: ReplyRequest, said: tuple[int, ...], tokens: tuple[int, ...]
    ) -> Call:
        """How close a choice of a reply was under the current rule and sampling: ScoreMargin."""
        return self.ask(MeasureMargin(request, said, tokens))

    def count_tokens(self, request: ReplyRequest) -> Call:
        """How long the prompt of a reply would be: PromptTokens."""
        return self.ask(CountTokens(request))


class Call:
    """The answer to a command: a stream of events that ends with its result, or with ``Failed``.

    Read it with ``for`` on a plain thread, or with ``async for`` in an event loop, from one place.
    Events wait for their reader and none is lost; there are never more than one reply's.
    """

    def __init__(self, end: type[Answer], stop: Callable[[], None] = lambda: None) -> None:
        self.end = end
        self._stop = stop
        self._events: deque[Answer] = deque()
        self._pieces: list[str] = []
        self._last: Answer | None = None
        self._changed = threading.Condition()
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None

    def put(self, event: Answer) -> None:
        """Add an event, from any thread; those after the last one are dropped."""
        with self._changed:
            if self._last is not None:
                return
            self._events.append(event)
            if isinstance(event, Text):
                self._pieces.append(event.delta)
            if isinstance(event, self.end | Failed):
                self._last = event
            self._changed.notify_all()
            waiter, self._waiter = self._waiter, None
        if waiter is not None:
            with suppress(RuntimeError):  # The loop may be closed by now.
                waiter[0].call_soon_threadsafe(_wake, waiter[1])

    @property
    def done(self) -> bool:
        """Whether the last event has arrived, read or not."""
        return self._last is not None

    @property
    def empty(self) -> bool:
        """Whether every event that has arrived was read."""
        return not self._events

    @property
    def text(self) -> str:
        """The text of a reply so far, read or not; it outlives the engine."""
        with self._changed:
            return "".join(self._pieces)

    def result(self, timeout: float | None = None) -> Answer:
        """Wait for the last event, or TimeoutError; the others keep waiting for their reader."""
        with self._changed:
            self._changed.wait_for(lambda: self.done, timeout)
            if self._last is None:
                raise TimeoutError("the engine has not answered yet")
            return self._last

    def stop(self) -> None:
        """Ask for an early end, from any thread; a last event arrives all the same."""
        if not self.done:
            self._stop()

    def arrived(self) -> list[Answer]:
        """Read all events that have arrived."""
        with self._changed:
            events = list(self._events)
            self._events.clear()
        return events

    def __iter__(self) -> Call:
        return self

    def __next__(self) -> Answer:
        with self._changed:
            self._changed.wait_for(lambda: self._events or self.done)
            if not self._events:
                raise StopIteration
            return self._events.popleft()

    def __aiter__(self) -> Call:
        return self

    async def __anext__(self) -> Answer:
        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                if self._events:
                    return self._events.popleft()
                if self._last is not None:
                    raise StopAsyncIteration
                arrived = loop.create_future()
                self._waiter = loop, arrived
            await arrived


def _wake(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)
