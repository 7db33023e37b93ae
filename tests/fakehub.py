"""A hub of our own on the loopback interface, with the faults of the real one on demand."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

COMMIT = "c0ffee" + "0" * 34
LFS = 4096
"""Bytes from which a file is kept as a large one."""


@dataclass
class Hub:
    """What it serves and how it misbehaves; requests are counted."""

    models: dict[str, dict[str, bytes]] = field(default_factory=dict)
    breaks: list[int] = field(default_factory=list)
    """After how many bytes each of the next answers with weights breaks off."""
    statuses: list[int] = field(default_factory=list)
    """What each of the next requests for weights is answered with instead; 0 for the weights."""
    refuses: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Status and error code for whole models."""
    ranges: bool = True
    lies: bool = False
    """Weights are not those of the checksum."""
    lie: Callable[[BaseHTTPRequestHandler, str], bool] = lambda handler, kind: False
    """May answer a request of a kind (info, tree, head or file) itself, and returns whether."""
    entry: Callable[[dict[str, Any]], None] = lambda entry: None
    """Changes the entry of the weights in the list of files."""
    tags: list[str] = field(default_factory=list)
    """Of every model."""
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    """Method, path and range of the requests for files."""
    sent: int = 0
    """Bytes of weights that left."""

    def add(self, name: str, folder: Path) -> None:
        self.models[name] = {file.name: file.read_bytes() for file in folder.iterdir()}

    def size(self, name: str) -> int:
        return sum(len(data) for data in self.models[name].values())


def checksum(data: bytes) -> str:
    if len(data) >= LFS:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away in the middle is what some tests want, and no news."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Run a hub, and make the hub's library use it and a cache of its own."""

    class Handler(_Handler):
        state = hub

    server = _Server(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        name = "/".join(parts[2:4] if api else parts[:2])
        kind = ("tree" if "tree" in parts else "info") if api else "file"
        if self.state.lie(self, "head" if self.command == "HEAD" else kind):
            self.close_connection = True
            return
        if name in self.state.refuses:
            status, code = self.state.refuses[name]
            self._answer(status, b"", {"X-Error-Code": code})
        elif name not in self.state.models:
            self._answer(404, b"", {"X-Error-Code": "RepoNotFound"})
        elif api and "tree" in parts:
            entries = [_entry(path, data) for path, data in self.state.models[name].items()]
            for entry in entries:
                if entry["path"].endswith(".safetensors"):
                    self.state.entry(entry)
            self._json(entries)
        elif api and parts[4:] not in ([], ["revision", "main"], ["revision", COMMIT]):
            self._answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif api:
            known = {"id": name, "sha": COMMIT, "siblings": [], "private": False}
            self._json({**known, "tags": self.state.tags})
        else:
            self._file(self.state.models[name]["/".join(parts[4:])], "/".join(parts[4:]))

    def _file(self, data: bytes, path: str) -> None:
        state, large = self.state, path.endswith(".safetensors")
        wanted = self.headers.get("Range")
        state.asked.append((self.command, path, wanted))
        headers = {"ETag": f'"{checksum(data)}"', "X-Repo-Commit": COMMIT}
        if self.command == "HEAD":
            self._answer(200, data, headers)
            return
        if large and state.statuses and (status := state.statuses.pop(0)):
            self._answer(status, b"", {})
            return
        sent = bytes(reversed(data)) if large and state.lies else data
        status = 200
        if wanted and state.ranges:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, stop = int(first), int(last or len(data) - 1) + 1
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
            sent, status = sent[start:stop], 206
        self._answer(status, sent, headers, state.breaks.pop(0) if large and state.breaks else None)

    def _json(self, value: Any) -> None:
        self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _answer(
        self, status: int, body: bytes, headers: dict[str, str], breaks: int | None = None
    ) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        sent = body if breaks is None else body[:breaks]
        self.wfile.write(sent)
        self.state.sent += len(sent) if self.path.endswith(".safetensors") else 0
        if breaks is not None:
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)


def _entry(path: str, data: bytes) -> dict[str, Any]:
    git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": git}
    if len(data) >= LFS:
        entry["lfs"] = {"oid": checksum(data), "size": len(data), "pointerSize": 130}
    return entry
