"""Servers in a thread of the test's process, and an engine whose events a test writes."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from openai import OpenAI

from macspec.events import Emitted, Finished, Prefilled, Round, Text
from macspec.serve.app import Server, Settings
from macspec.stats import ReplyCounter
from macspec.worker import (
    Call,
    EngineClient,
    Failed,
    Queued,
    SharedReply,
    Status,
    Tuned,
    Tuning,
)
from macspec.worker.messages import Answer, Command, GetStatus, Tune

MODEL = "org/model"


@contextmanager
def serving(engine: EngineClient, settings: Settings | None = None) -> Iterator[Server]:
    """A running server, and at ``server.port`` where."""
    server = Server(engine, settings or Settings(MODEL))
    listening = socket.create_server(("127.0.0.1", 0))
    server.port = listening.getsockname()[1]  # type: ignore[attr-defined]
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
    thread.start()
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether something becomes true within a minute."""
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


def ask(
    server: Any, body: Any, path: str = "/v1/chat/completions", **headers: str
) -> tuple[int, Any]:
    """The status and the JSON that answer a request; a body of bytes goes as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request("POST", path, raw, {k.replace("_", "-"): v for k, v in headers.items()})
        response = connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text.startswith(b"{") else text.decode()
    finally:
        connection.close()


def openai_client(server: Any) -> OpenAI:
    return OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)


def chat(text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"model": "macspec", "messages": [{"role": "user", "content": text}], **more}


def said(text: str, number: int = 0, drafter: str | None = None, part: str = "answer") -> Text:
    return Text(text, (Emitted(number, drafter),), ((len(text), drafter),), part)


def a_round(drafter: str | None = None, drafted: int = 0, accepted: int = 0, **more: Any) -> Round:
    tokens = tuple(range(accepted + 1))
    return Round(tokens, drafter, drafted, drafted, accepted, 0.01, 0.0, **more)


def finished(reason: str = "end", tokens: int = 3) -> Finished:
    counter = ReplyCounter(prompt_tokens=7, cached_tokens=2)
    for _ in range(tokens):
        counter.add(1, 0.01)
    return Finished(reason, "", tuple(range(tokens)), 5, "keyed", "auto", "auto", counter.stats())


HELLO: tuple[Answer, ...] = (
    Queued(7),
    Prefilled(7, 2, 0.1),
    said("Hello"),
    a_round(),
    said(" there"),
    a_round(),
    finished(),
)


@dataclass
class ScriptedClient(EngineClient):
    """Answers every request with the same events; without the last, it goes on until stopped."""

    events: Sequence[Answer] = HELLO
    asked: list[SharedReply] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    stopped: list[Call] = field(default_factory=list)
    more: Callable[[Call], None] = lambda call: None
    tuned: dict[str, Any] = field(default_factory=dict)

    def start(self) -> None: ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...

    def ask(self, command: Command) -> Call:
        if isinstance(command, Tune):
            return self._tune(command.changes)
        if isinstance(command, GetStatus):
            return _answered(Status, Status(None, Tuning(**self.tuned), "", 0, 1, 2))
        assert isinstance(command, SharedReply)
        call: Call

        def stop() -> None:
            self.stopped.append(call)
            call.put(Failed("stopped", "stopped"))

        call = Call(Finished, stop)
        self.asked.append(command)
        self.calls.append(call)
        for event in self.events:
            call.put(event)
        self.more(call)
        return call

    def _tune(self, changes: Mapping[str, Any]) -> Call:
        if changes == {"depth": 99}:
            return _answered(Tuned, Failed("refused", "depth is 99"))
        self.tuned |= changes
        return _answered(Tuned, Tuned(Tuning(**self.tuned)))


def _answered(end: type[Answer], answer: Answer) -> Call:
    call = Call(end)
    call.put(answer)
    return call
