"""Who may ask, how much and how slowly: checks before a request reaches its route.

A web page can send requests to a loopback address: directly (they carry its Origin), or under a
name of its own that resolves to this machine (DNS rebinding; they carry that name as their Host).
Both are refused, whatever else they ask for.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from uvicorn.protocols.http.h11_impl import H11Protocol

from .protocol import RequestError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST = 8 * 2**20
"""Bytes of a request's body; a million tokens of text are about five million."""

CONNECTIONS = 192
"""Most connections at once: fewer than the 256 files that a process of macOS may open."""

HEADERS = 15.0
"""Seconds for the headers of a connection's first request."""

BODY = 60.0
"""Seconds for a body."""

READER = 60.0
"""Seconds in which a reader must take something of what is sent."""


HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]\s]+?)\.?)(?::\d{1,5})?")
"""An address of version 6 in brackets, or a name or another address; and a port."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask.

    Args:
        key: what requests must name; None: nothing.
        hosts: names of this machine, beside localhost and loopback addresses.
        origins: of web pages that may ask.
        beyond: whether other machines can reach the server; any address of this one is a Host.
    """

    key: str | None = None
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    beyond: bool = False

    def refusal(self, headers: Headers) -> RequestError | None:
        """Why a request is refused; None: it is not."""
        host = headers.get("host", "")
        if not self._is_own(host):
            return RequestError(
                403,
                f"the Host header names {host[:80]!r}, not this machine: use its address, or start "
                "the server with --allow-host",
                code="host_not_allowed",
            )
        origin = headers.get("origin")
        crossed = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if (origin is not None or crossed) and origin not in self.origins:
            return RequestError(
                403,
                f"the web page {(origin or '')[:80]!r} may not ask: start the server with "
                "--allow-origin",
                code="origin_not_allowed",
            )
        return None

    def has_key(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if self.key is None:
            return True
        same = hmac.compare_digest(given.strip().encode(), self.key.encode())
        return scheme.lower() == "bearer" and same

    def _is_own(self, host: str) -> bool:
        name = host_name(host)
        if name == "localhost" or name in self.hosts:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.beyond or address.is_loopback


def host_name(host: str) -> str:
    """The name or address in a Host header, without its port; empty: there is none."""
    found = HOST.fullmatch(host.lower())
    return "" if found is None else (found[1] or found[2])


class Guard:
    """Middleware: refuses what ``Access`` does, bodies that are too large, and clients too slow."""

    def __init__(self, app: App, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        bounded = patient(send)
        headers = Headers(scope=scope)
        error = self._access.refusal(headers)
        preflight = scope["method"] == "OPTIONS"
        if error is None and not preflight and not self._access.has_key(headers):
            error = RequestError(401, "the API key is missing or wrong", code="invalid_api_key")
        length = headers.get("content-length", "0")
        if error is None and length.isdecimal() and int(length[:20]) > LARGEST:
            error = too_large()
        if error is not None:
            await send_json(bounded, error.status, error.body, close=True)
            return
        await self._app(scope, limited(receive), bounded)


def too_large() -> RequestError:
    what = f"the request is larger than {LARGEST // 2**20} MB: shorten it"
    return RequestError(413, what, code="request_too_large")


def limited(receive: Receive) -> Receive:
    """Receives a body of at most ``LARGEST`` bytes, in at most ``BODY`` seconds."""
    until = asyncio.get_running_loop().time() + BODY
    got, over = 0, False

    async def bounded() -> Message:
        nonlocal got, over
        if over:
            return await receive()
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError:
            raise RequestError(408, f"the request took longer than {BODY:.0f} s") from None
        got += len(message.get("body", b""))
        over = not message.get("more_body", False)
        if got > LARGEST:
            raise too_large()
        return message

    return bounded


def patient(send: Send) -> Send:
    """Sends to a reader who takes something within ``READER`` seconds; else it is gone."""

    async def bounded(message: Message) -> None:
        try:
            async with asyncio.timeout(READER):
                await send(message)
        except TimeoutError:
            raise ConnectionResetError("the reader takes nothing") from None

    return bounded


async def send_json(send: Send, status: int, body: Any, *, close: bool = False) -> None:
    """A whole response."""
    raw = json.dumps(body).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(raw)).encode()),
        *([(b"connection", b"close")] if close else []),
        *([(b"retry-after", b"1")] if status == 429 else []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": raw})


class Connection(H11Protocol):
    """A connection that is closed if it sends no whole request in its first ``HEADERS`` seconds.

    When there are too many, the one of those without a request that came first is closed.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begun = asyncio.get_running_loop().call_later(HEADERS, self._expire)
        if len(self.connections) > CONNECTIONS:
            silent: Any = [it for it in self.connections if getattr(it, "cycle", None) is None]
            oldest = min(silent, key=lambda it: it._begun.when())
            self.connections.discard(oldest)
            oldest.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._begun.cancel()
        super().connection_lost(exc)

    def _expire(self) -> None:
        if self.cycle is None:
            self.transport.close()
