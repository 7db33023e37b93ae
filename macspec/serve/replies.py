"""One request on its way through the engine: its place in the queue, its events, its client."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ..events import Finished, Notice, Prefilling
from ..worker import Call, EngineClient, Failed
from ..worker.messages import Answer
from .answers import Writer
from .guard import Receive, Scope, Send, send_json
from .protocol import Request, RequestError, engine_error

QUIET = 10.0
"""Seconds without an event after which a stream sends a comment, so that no client gives up."""

STREAM = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


Watch = Callable[[Call, Answer | None], None]
"""Sees a call's events, and None once it is over."""


class Queue:
    """Counts the requests that are answered or wait; those beyond ``most`` are refused.

    Which of them decode, and whose turn it is, the engine decides.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        if self.held >= self.most:
            raise RequestError(
                429,
                f"{self.held} requests are waiting already: try again later",
                code="queue_full",
            )
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1


class Reply:
    """The response to a valid request; ends the engine's reply when its client leaves."""

    def __init__(
        self,
        engine: EngineClient,
        queue: Queue,
        request: Request,
        model: str,
        watch: Watch | None = None,
    ) -> None:
        self._engine, self._queue, self._request = engine, queue, request
        self._writer = Writer(request, model, time.monotonic())
        self._watch = watch or (lambda call, event: None)
        self._begun = False
        """Whether the stream has."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._queue.place():
                await self._while_heard(receive, send)
        except RequestError as error:
            await self._fail(send, error)

    async def _while_heard(self, receive: Receive, send: Send) -> None:
        call = self._engine.ask(self._request.reply)
        work = asyncio.create_task(self._answer(call, send))
        gone = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            call.stop()
            self._watch(call, None)
            gone.cancel()
            if not work.done():
                work.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await work

    async def _answer(self, call: Call, send: Send) -> None:
        async for event in self._events(call):
            if isinstance(event, Failed):
                raise engine_error(event)
            if event is not None and not isinstance(event, Notice):
                self._writer.see(event)
            if self._request.stream:
                await self._stream(event, send)
            elif isinstance(event, Finished):
                await send_json(send, 200, self._writer.whole(event))

    async def _events(self, call: Call) -> AsyncIterator[Answer | None]:
        """The events; None after a while without any."""
        while not (call.done and call.empty):
            try:
                async with asyncio.timeout(QUIET):
                    event = await anext(call)
            except TimeoutError:
                yield None
                continue
            self._watch(call, event)
            yield event

    async def _stream(self, event: Answer | None, send: Send) -> None:
        """Send what an event adds, in one piece."""
        data = b""
        if not self._begun:
            self._begun = True
            await send({"type": "http.response.start", "status": 200, "headers": STREAM})
            opening = self._writer.opening()
            data += b"" if opening is None else _line(opening)
        if event is None:
            data += b": waiting\n\n"
        elif isinstance(event, Prefilling):
            data += f": {event.done} of {event.total} tokens read\n\n".encode()
        else:
            data += b"".join(map(_line, self._writer.chunks(event)))
        over = isinstance(event, Finished)
        if over:
            data += b"data: [DONE]\n\n"
        if data:
            await send({"type": "http.response.body", "body": data, "more_body": not over})

    async def _fail(self, send: Send, error: RequestError) -> None:
        if not self._begun:
            await send_json(send, error.status, error.body)
            return
        # The status was sent long ago; clients know an error in the stream.
        await send({"type": "http.response.body", "body": _line(error.body)})


def _line(value: Any) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
