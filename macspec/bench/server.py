"""A server on this machine that speaks OpenAI's protocol: llama-server, LM Studio, ollama."""

from __future__ import annotations

import ipaddress
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from ..errors import BadOptionError, ServerError, brief
from ..prompt import Message


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens on this machine."""

    host: str
    """A loopback address, as numbers."""
    port: int
    path: str
    """What all its paths begin with."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """An address as people write it: ``localhost:8080``, ``http://127.0.0.1:1234/v1``.

        Raises:
            BadOptionError: it is none, or not of this machine.
        """
        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            port = parts.port
        except ValueError as error:
            raise BadOptionError(f"{text!r} is not an address: {error}") from None
        if parts.scheme != "http" or parts.hostname is None or parts.username is not None:
            raise BadOptionError(f"{text!r} is not an address like http://127.0.0.1:8080/v1")
        if port is None:
            raise BadOptionError(f"{text!r} has no port; give one, as in http://127.0.0.1:8080/v1")
        path = parts.path.rstrip("/") or "/v1"
        return cls(_loopback(parts.hostname, port), port, path)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.path}"


def _loopback(host: str, port: int) -> str:
    """The loopback address of a host."""
    try:
        found = [host]
        if host == "localhost":
            found = [
                str(it[4][0]) for it in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            ]
        addresses = [ipaddress.ip_address(it) for it in found]
    except (OSError, ValueError):
        addresses = []
    if not addresses or not all(it.is_loopback for it in addresses):
        raise BadOptionError(
            f"{host} is not an address of this machine: only servers at localhost, 127.0.0.1 or "
            "[::1] can be measured"
        )
    # Servers listen on version 4 more often than on 6.
    return str(min(addresses, key=lambda it: it.version))


TEXTS = ("reasoning_content", "reasoning", "content", "text")
"""The fields of a chunk that are text."""


@dataclass(slots=True)
class Streamed:
    """A reply of a server; None for what the server does not tell."""

    pieces: list[tuple[str, float]] = field(default_factory=list)
    """Some text each, and when it came."""
    reason: str = ""
    """end, length, or the server's own word; empty while it streams."""
    tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    _counts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The newest objects of the stream that have counts, by name."""

    def see(self, chunk: Mapping[str, Any], now: float) -> None:
        """Take the next chunk of the stream."""
        choices = chunk.get("choices")
        choice = _object(choices[0] if isinstance(choices, list) and choices else None)
        delta = choice.get("delta")
        fields = delta if isinstance(delta, dict) else choice
        if text := "".join(it for name in TEXTS if isinstance(it := fields.get(name), str)):
            self.pieces.append((text, now))
        if isinstance(reason := choice.get("finish_reason"), str):
            self.reason = "end" if reason == "stop" else reason
        for name in ("usage", "timings", "stats"):
            self._counts[name] = _object(chunk.get(name)) or self._counts.get(name, {})
        usage, timings, stats = self._counts.values()
        details = _object(usage.get("prompt_tokens_details"))
        self.tokens = _count(usage.get("completion_tokens"), timings.get("predicted_n"))
        self.prompt_tokens = _count(usage.get("prompt_tokens"))
        self.cached_tokens = _count(details.get("cached_tokens"), timings.get("cache_n"))
        self.drafted = _count(timings.get("draft_n"), stats.get("total_draft_tokens_count"))
        self.accepted = _count(
            timings.get("draft_n_accepted"), stats.get("accepted_draft_tokens_count")
        )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(*values: Any) -> int | None:
    """The first that is a count."""
    counts = (it for it in values if isinstance(it, int) and not isinstance(it, bool) and it >= 0)
    return next(counts, None)


def _parsed(said: bytes) -> Any:
    """What JSON says; None where it is none."""
    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        return None


def _why(answer: Any) -> str:
    """What an answer says about why it is none."""
    for name in ("error", "message"):
        if isinstance(answer, dict):
            answer = answer.get(name, answer)
    return brief(ValueError(answer if isinstance(answer, str) else json.dumps(answer)))


CONNECTING = 5.0
"""Seconds in which a server of this machine must take a connection."""

PATIENCE = 300.0
"""Seconds of silence after which a server is given up; a long prompt may take a while."""

LONGEST = 2**20
"""Bytes of one event of a stream, and of an answer that is none."""


@dataclass(slots=True)
class Server:
    """A server that is there already.

    Every reply opens a connection of its own. Nothing is sent anywhere but to this machine:
    redirections are not followed, and no proxy is asked.
    """

    address: Address
    named: str | None = None
    """The model it is to answer with; None: the first one that it lists."""
    clock: Callable[[], float] = time.perf_counter
    patience: float = PATIENCE
    """Seconds of silence until it is given up."""

    @property
    def model(self) -> str:
        """The name of the model it answers with.

        Raises:
            ServerError: it lists none, or does not answer.
        """
        if self.named is None:
            listed = self.models()
            if not listed:
                raise self._error("lists no model: load one there, or name one")
            self.named = listed[0]
        return self.named

    def models(self) -> list[str]:
        """The names of its models.

        Raises:
            ServerError: it does not answer, or with something else.
        """
        with self._asked("GET", "/models") as response:
            entries = _object(_parsed(self._received(response.read))).get("data")
        if not isinstance(entries, list):
            raise self._error("does not list its models: name the one to measure")
        names = [_object(it).get("id") for it in entries]
        return [name for name in names if isinstance(name, str)]

    def ready(self) -> bool:
        """Whether it takes requests; servers that still load their model say that they do not."""
        with closing(self._connection()) as connection:
            try:
                connection.request("GET", "/health")
                return connection.getresponse().status < 500
            except (OSError, HTTPException):
                return False

    def reply(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        raw: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> Streamed:
        """Ask for a reply, and time its pieces as they come.

        Whatever interrupts it ends the connection, at which servers stop to write.

        Args:
            messages: the conversation; the last one is answered.
            raw: continue the last message's text as it is.
            settings: more fields of the request, such as temperature and seed.

        Raises:
            ServerError: it cannot be reached, refuses, falls silent, or breaks off.
        """
        body: dict[str, Any] = {
            "model": self.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": max_tokens,
            **(settings or {}),
        }
        if raw:
            path, body["prompt"] = "/completions", messages[-1]["content"]
        else:
            path, body["messages"] = "/chat/completions", [dict(turn) for turn in messages]
        streamed = Streamed()
        with self._asked("POST", path, body) as response:
            for event in self._events(response):
                now, chunk = self.clock(), _parsed(event)
                if not isinstance(chunk, dict):
                    raise self._error(
                        "sends invalid JSON" if chunk is None else "streams a non-object"
                    )
                if chunk.get("error"):
                    raise self._error(f"reports: {_why(chunk)}")
                streamed.see(chunk, now)
        if not streamed.reason:
            raise self._error("broke off in the middle of a reply; its log may say why")
        return streamed

    def _events(self, response: HTTPResponse) -> Iterator[bytes]:
        """The data of each event of a stream (text/event-stream)."""
        data: list[bytes] = []
        size = 0
        while True:
            line = self._received(response.readline)
            size += len(line)
            if size > LONGEST:
                raise self._error("streams an event without an end")
            name, _, value = line.rstrip(b"\r\n").partition(b":")
            if name == b"data":
                data.append(value.removeprefix(b" "))
            elif name == b"error":  # llama-server's way to break off
                data.append(b'{"error": ' + (value.strip() or b'"unknown"') + b"}")
            if not line.strip(b"\r\n"):
                whole = b"\n".join(data)
                data, size = [], 0
                if whole not in (b"", b"[DONE]"):
                    yield whole
                if not line or whole == b"[DONE]":
                    return

    def _received(self, read: Callable[[int], bytes]) -> bytes:
        """What comes, up to ``LONGEST`` bytes and one."""
        try:
            return read(LONGEST + 1)
        except TimeoutError:
            raise self._error(f"sent nothing for {self.patience:g} s") from None
        except (OSError, HTTPException) as broken:
            raise ServerError(
                f"the connection to the server at {self.address} broke: {brief(broken)}"
            ) from None

    def _connection(self) -> HTTPConnection:
        return HTTPConnection(self.address.host, self.address.port, timeout=CONNECTING)

    @contextmanager
    def _asked(self, method: str, path: str, body: Any = None) -> Iterator[HTTPResponse]:
        """The response to a request, if it is a good one."""
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        with closing(self._connection()) as connection:
            try:
                connection.connect()
                connection.sock.settimeout(self.patience)
                connection.request(method, self.address.path + path, data, headers)
                response = connection.getresponse()
            except ConnectionRefusedError:
                raise ServerError(
                    f"no server answers at {self.address}: start it, or give another address"
                ) from None
            except TimeoutError:
                raise self._error("does not answer") from None
            except (OSError, HTTPException) as broken:
                raise ServerError(
                    f"what answers at {self.address} is not a web server: {brief(broken)}"
                ) from None
            if response.status != 200:
                said = self._received(response.read)
                answer = _parsed(said)
                if answer is None:
                    answer = said.decode(errors="replace").strip() or response.reason
                raise self._error(f"answers {path} with {response.status}: {_why(answer)}")
            yield response

    def _error(self, what: str) -> ServerError:
        return ServerError(f"the server at {self.address} {what}")
