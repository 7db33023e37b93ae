"""The answer to one request: a stream of events that other threads fill."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable

from ..events import Text
from .messages import Answer, Failed


class Call:
    """A stream of events that ends with the one that answers the request, or with ``Failed``.

    Read it with ``for`` on a plain thread, or with ``async for`` in an event loop, from one place.
    Events wait for their reader and none is lost; there are never more than one reply's.

    Args:
        end: the event that answers the request.
        stop: asks the engine to end this call early.
    """

    def __init__(self, end: type[Answer], stop: Callable[[], None] = lambda: None) -> None:
        self._end = end
        self._stop = stop
        self._events: deque[Answer] = deque()
        self._pieces: list[str] = []
        self._last: Answer | None = None
        self._changed = threading.Condition()
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None

    def put(self, event: Answer) -> None:
        """Add an event, from any thread; what comes after the last one is dropped."""
        with self._changed:
            if self._last is not None:
                return
            self._events.append(event)
            if isinstance(event, Text):
                self._pieces.append(event.delta)
            if isinstance(event, self._end | Failed):
                self._last = event
            self._changed.notify_all()
            waiter, self._waiter = self._waiter, None
        if waiter is not None:
            with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
                waiter[0].call_soon_threadsafe(_wake, waiter[1])

    @property
    def done(self) -> bool:
        """Whether the last event has come, read or not."""
        return self._last is not None

    @property
    def text(self) -> str:
        """The reply's text so far, read or not; it outlives the engine."""
        with self._changed:
            return "".join(self._pieces)

    def result(self, timeout: float | None = None) -> Answer:
        """Wait for the last event; the others still wait for their reader.

        Raises:
            TimeoutError: it did not come within so many seconds.
        """
        until = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while self._last is None:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError("the engine has not answered yet")
                self._changed.wait(left)
            return self._last

    def stop(self) -> None:
        """Ask for an early end; the last event comes all the same. From any thread."""
        if not self.done:
            self._stop()

    def arrived(self) -> list[Answer]:
        """The events that wait for their reader, and do so no more."""
        with self._changed:
            events = list(self._events)
            self._events.clear()
        return events

    def __iter__(self) -> Call:
        return self

    def __next__(self) -> Answer:
        with self._changed:
            while not self._events:
                if self._last is not None:
                    raise StopIteration
                self._changed.wait()
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
