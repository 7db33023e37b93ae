"""A server on this machine that speaks OpenAI's protocol: llama-server, LM Studio, ollama."""

from __future__ import annotations

import ipaddress
import json
import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text, and when it came."""

    text: str
    at: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The reply is over; None for what the server does not tell."""

    reason: str
    """end, length, or the server's own word."""
    tokens: int | None
    prompt_tokens: int | None
    cached_tokens: int | None
    drafted: int | None
    accepted: int | None


def text_of(choice: Mapping[str, Any]) -> str:
    """The text of a chunk, reasoning included."""
    delta = choice.get("delta")
    fields = delta if isinstance(delta, dict) else choice
    names = ("reasoning_content", "reasoning", "content", "text")
    return "".join(fields[name] for name in names if isinstance(fields.get(name), str))


def ended(reason: str, parts: Mapping[str, Mapping[str, Any]]) -> Ended:
    """How a reply ended, from the objects of its chunks by their names."""
    usage, timings, stats = (parts.get(name, {}) for name in ("usage", "timings", "stats"))
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    return Ended(
        reason="end" if reason == "stop" else reason,
        tokens=_count(usage.get("completion_tokens"), timings.get("predicted_n")),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count(details.get("cached_tokens"), timings.get("cache_n")),
        drafted=_count(timings.get("draft_n"), stats.get("total_draft_tokens_count")),
        accepted=_count(timings.get("draft_n_accepted"), stats.get("accepted_draft_tokens_count")),
    )


def _count(*values: Any) -> int | None:
    """The first that is a count."""
    counts = (it for it in values if isinstance(it, int) and not isinstance(it, bool) and it >= 0)
    return next(counts, None)


def refusal(said: bytes) -> str:
    """What an answer says about why it is none."""
    try:
        answer = json.loads(said)
    except (ValueError, RecursionError):
        return brief(ValueError(said.decode(errors="replace"))) if said.strip() else ""
    return error(answer) if isinstance(answer, dict) else ""


def error(answer: Mapping[str, Any]) -> str:
    inner = answer.get("error", answer)
    if isinstance(inner, dict):
        inner = inner.get("message", inner)
    return brief(ValueError(inner if isinstance(inner, str) else json.dumps(inner)))


CONNECTING = 5.0
"""Seconds in which a server of this machine must take a connection."""

PATIENCE = 300.0
"""Seconds of silence after which a server is given up; a long prompt may take a while."""

LONGEST = 2**20
"""Bytes of one event of a stream, and of an answer that is none."""


class Server:
    """A server that is there already.

    Every reply opens a connection of its own. Nothing is sent anywhere but to this machine:
    redirections are not followed, and no proxy is asked.

    Args:
        address: where it listens.
        model: the name of the model it is to answer with; None: the first one that it lists.
        clock: seconds.
        patience: seconds of silence until it is given up.
    """

    def __init__(
        self,
        address: Address,
        model: str | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        patience: float = PATIENCE,
    ) -> None:
        self.address = address
        self._model = model
        self._clock, self._patience = clock, patience

    @property
    def model(self) -> str:
        """The name of the model it answers with.

        Raises:
            ServerError: it lists none, or does not answer.
        """
        if self._model is None:
            listed = self.models()
            if not listed:
                raise self._error("lists no model: load one there, or name one")
            self._model = listed[0]
        return self._model

    def models(self) -> list[str]:
        """The names of its models.

        Raises:
            ServerError: it does not answer, or with something else.
        """
        with self._asked("GET", "/models") as response:
            said = self._received(response.read)
        try:
            answer = json.loads(said)
        except (ValueError, RecursionError):
            answer = None
        entries = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(entries, list):
            raise self._error("does not list its models: name the one to measure")
        names = [it.get("id") for it in entries if isinstance(it, dict)]
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
    ) -> Generator[Piece | Ended, None, None]:
        """Stream a reply: pieces of text as they come, then how it ended.

        Closing the generator ends the connection, at which servers stop to write.

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
        with self._asked("POST", path, body) as response:
            yield from self._pieces(response)

    def _pieces(self, response: HTTPResponse) -> Iterator[Piece | Ended]:
        reason: str | None = None
        parts: dict[str, Any] = {}
        for event in self._events(response):
            now = self._clock()
            try:
                chunk = json.loads(event)
            except (ValueError, RecursionError):
                raise self._error("sends invalid JSON") from None
            if not isinstance(chunk, dict):
                raise self._error("streams a non-object")
            if chunk.get("error"):
                raise self._error(f"reports: {error(chunk)}")
            for name in ("usage", "timings", "stats"):
                if isinstance(chunk.get(name), dict):
                    parts[name] = chunk[name]
            choices = chunk.get("choices")
            choice = choices[0] if isinstance(choices, list) and choices else None
            if isinstance(choice, dict):
                text = text_of(choice)
                if text:
                    yield Piece(text, now)
                if isinstance(choice.get("finish_reason"), str):
                    reason = choice["finish_reason"]
        if reason is None:
            raise self._error("broke off in the middle of a reply; its log may say why")
        yield ended(reason, parts)

    def _events(self, response: HTTPResponse) -> Iterator[bytes]:
        """The data of each event of a stream (text/event-stream)."""
        data: list[bytes] = []
        size = 0
        while True:
            line = self._received(response.readline)
            size += len(line)
            if size > LONGEST:
                raise self._error("streams an event without an end")
            over, line = not line, line.rstrip(b"\r\n")
            name, _, value = line.partition(b":")
            if name == b"data":
                data.append(value.removeprefix(b" "))
            elif name == b"error":  # llama-server's way to break off
                data.append(b'{"error": ' + (value.strip() or b'"unknown"') + b"}")
            if not line:
                whole = b"\n".join(data)
                data, size = [], 0
                if whole == b"[DONE]" or (over and not whole):
                    return
                if whole:
                    yield whole

    def _received(self, read: Callable[[int], bytes]) -> bytes:
        """What comes, up to ``LONGEST`` bytes and one."""
        try:
            return read(LONGEST + 1)
        except TimeoutError:
            raise self._error(f"sent nothing for {self._patience:g} s") from None
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
                connection.sock.settimeout(self._patience)
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
                reason = refusal(self._received(response.read)) or response.reason
                raise self._error(f"answers {path} with {response.status}: {reason}")
            yield response

    def _error(self, what: str) -> ServerError:
        return ServerError(f"the server at {self.address} {what}")
