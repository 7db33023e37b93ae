"""The routes of OpenAI's protocol, and the server that serves them."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..errors import frames
from ..terminal import REQUESTS
from ..worker import EngineClient
from .guard import Access, Connection, Guard
from .protocol import (
    ALIAS,
    Defaults,
    Fields,
    Request,
    RequestError,
    chat_request,
    completion_request,
    parsed,
)
from .replies import Queue, Reply, Watch

Parse = Callable[[Fields, Defaults], Request]


@dataclass(frozen=True, slots=True)
class Settings:
    """How to serve.

    Args:
        model: the loaded target.
        queue: most requests that are answered or wait.
        watch: sees every call's events, and None once it is over.
    """

    model: str
    defaults: Defaults = field(default_factory=Defaults)
    access: Access = field(default_factory=Access)
    queue: int = 64
    watch: Watch | None = None


class Api:
    """The endpoints."""

    def __init__(self, engine: EngineClient, settings: Settings) -> None:
        self._engine, self._settings = engine, settings
        self._queue = Queue(settings.queue)
        self._created = int(time.time())

    async def chat(self, request: HttpRequest) -> Any:
        return await self._reply(request, chat_request)

    async def completion(self, request: HttpRequest) -> Any:
        return await self._reply(request, completion_request)

    async def models(self, request: HttpRequest) -> Response:
        models = [self._model(name) for name in self._names]
        return JSONResponse({"object": "list", "data": models})

    async def model(self, request: HttpRequest) -> Response:
        return JSONResponse(self._model(self._known(request.path_params["name"])))

    async def _reply(self, request: HttpRequest, parse: Parse) -> Any:
        fields = parsed(await request.body())
        model = self._known(fields.get("model", str, ALIAS))
        valid = parse(fields, self._settings.defaults)
        return Reply(self._engine, self._queue, valid, model, self._settings.watch)

    def _known(self, name: str) -> str:
        if name not in self._names:
            known = " or ".join(self._names)
            raise RequestError(
                404,
                f"there is no model {name[:80]!r} here: use {known}",
                "model",
                "model_not_found",
            )
        return name

    @property
    def _names(self) -> tuple[str, ...]:
        return (self._settings.model, ALIAS)

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "macspec"}


def application(engine: EngineClient, settings: Settings) -> Starlette:
    """The application of a loaded engine."""
    api = Api(engine, settings)
    access = settings.access
    cors = [
        Middleware(
            CORSMiddleware,
            allow_origins=list(access.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
        )
    ]
    return Starlette(
        routes=[
            Route("/v1/chat/completions", api.chat, methods=["POST"]),
            Route("/v1/completions", api.completion, methods=["POST"]),
            Route("/v1/models", api.models),
            Route("/v1/models/{name:path}", api.model),
        ],
        middleware=[Middleware(Guard, access=access), *(cors if access.origins else [])],
        exception_handlers={
            RequestError: _refused,
            HTTPException: _not_found,
            ClientDisconnect: _gone,
            Exception: _broken,
        },
    )


class Server(uvicorn.Server):
    """Serves HTTP/1.1 until a signal asks it to leave, and ends the replies then."""

    def __init__(self, engine: EngineClient, settings: Settings) -> None:
        super().__init__(
            uvicorn.Config(
                application(engine, settings),
                http=Connection,
                ws="none",
                lifespan="off",
                log_level="error",
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_graceful_shutdown=1,
            )
        )
        logging.getLogger("uvicorn.error").addFilter(_without_message)
        self.status = 0
        """The exit status: 128 and the signal, as a shell has it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As in uvicorn, but a signal that was obeyed is not sent again at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {it: signal.signal(it, self.handle_exit) for it in REQUESTS}
        try:
            yield
        finally:
            for it, handler in before.items():
                signal.signal(it, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.status = 128 + sig
        super().handle_exit(sig, frame)


def _without_message(record: logging.LogRecord) -> bool:
    """Have a record quote no request: the traceback of an error stays, its message does not."""
    if record.exc_info and record.exc_info[1]:
        record.exc_text = frames(record.exc_info[1])
    return True


def _refused(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    closing = {"connection": "close"} if error.status in (408, 413) else None
    return JSONResponse(error.body, error.status, closing)


def _not_found(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = f"there is no {request.method} {request.url.path[:80]} here: the API begins at /v1"
    return JSONResponse(RequestError(error.status_code, what).body, error.status_code)


def _gone(request: HttpRequest, error: Exception) -> Response:
    return Response(status_code=499)


def _broken(request: HttpRequest, error: Exception) -> Response:
    what = f"unexpected {type(error).__name__} in the server: please report it"
    return JSONResponse(RequestError(500, what).body, 500)
