"""``macspec serve``: loads the pair, and serves it until asked to leave."""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import os
import socket
from dataclasses import fields
from typing import Any

from ..choices import think_named
from ..config.schema import section
from ..errors import BadOptionError, MacspecError
from ..models.progress import Progress
from ..power import Meter, awake, choose, remembered_idle
from ..serve.app import Server, Settings
from ..serve.guard import Access
from ..serve.protocol import Defaults
from ..terminal import ProgressLine, say
from ..worker import Call, Failed, Loaded, LoadProgress, PairChoice, ProcessEngine
from .models import show_download
from .serve import KEY


def serve(options: argparse.Namespace) -> int:
    """Serve until asked to leave; returns the exit status."""
    key = options.api_key or os.environ.get(KEY) or None
    beyond = not _is_loopback(options.host)
    if beyond and key is None:
        raise BadOptionError(
            f"--host {options.host} lets other machines ask: add --api-key, or set {KEY}"
        )
    if options.panel:
        from ..app.start import no_screen

        if (reason := no_screen()) is not None:
            raise BadOptionError(f"--panel needs a terminal: {reason}")
    listening = _listening(options.host, options.port)
    engine = ProcessEngine()
    try:
        engine.start()
        loaded = _loaded(engine.load(_pair(options)))
        sampling = {name: getattr(options, name) for name in section("sampling")}
        chosen = {name: getattr(options, name) for name in ("method", "depth", "rule")}
        tuned = engine.tune(**chosen, sampling=sampling).result()
        if isinstance(tuned, Failed):
            raise BadOptionError(tuned.message)
        with listening, awake(options.settings.power.keep_awake):
            return _served(engine, loaded, options, key, beyond, listening)
    finally:
        engine.close()


def _served(
    engine: ProcessEngine,
    loaded: Loaded,
    options: argparse.Namespace,
    key: str | None,
    beyond: bool,
    listening: socket.socket,
) -> int:
    settings = Settings(
        loaded.pair.target,
        Defaults(options.max_tokens, think_named(options.think)),
        Access(
            key,
            tuple(it.lower() for it in options.allow_host),
            tuple(it.rstrip("/") for it in options.allow_origin),
            beyond,
        ),
        options.queue,
    )
    address = _address(listening)
    if options.panel:
        from ..app.serving import ServingApp

        source = options.settings.power.source
        meter = Meter(lambda: choose(source), idle=remembered_idle())
        status: int = ServingApp(engine, loaded, settings, listening, address, meter).served()
        return status
    say(f"{loaded.pair.target} is served at {address} (Ctrl-C ends it)")
    server = Server(engine, settings)
    asyncio.run(server.serve([listening]))
    return server.status


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        why = error.strerror or str(error)
        raise MacspecError(
            f"cannot listen at {host} port {port} ({why}): choose another --port or --host"
        ) from error


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def _pair(options: argparse.Namespace) -> PairChoice:
    given = {**vars(options), "require_draft": options.method == "draft"}
    return PairChoice(**{each.name: given[each.name] for each in fields(PairChoice)})


def _loaded(call: Call) -> Loaded:
    """Wait for the pair, downloads shown as a bar."""
    bar = ProgressLine()
    for event in call:
        if isinstance(event, LoadProgress) and event.stage == "downloading":
            show_download(bar, Progress(event.model, "", event.done, event.total, rate=0.0))
            continue
        bar.end()
        if isinstance(event, Failed):
            raise MacspecError(event.message)
        if isinstance(event, Loaded):
            return event
        message: Any = getattr(event, "message", None)
        if message:
            say(message)
    raise MacspecError("the engine ended while it loaded")
