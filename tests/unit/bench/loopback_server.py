"""A small server on this machine that speaks OpenAI's protocol as a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from macspec.bench.server import Address


class Script:
    """What the server does, and what it was asked."""

    def __init__(self) -> None:
        self.chunks: Sequence[bytes | Callable[[], None]] = ()
        """Written as they are, each at once; a function is called where it stands."""
        self.status = 200
        self.body = b""
        """The answer, where there are no chunks."""
        self.models: Any = {"data": [{"id": "m-1"}, {"id": "m-2"}]}
        self.health = 200
        self.asked: list[tuple[str, Any]] = []
        self.hung_up = threading.Event()
        """The client went away while it was written to."""


def event(chunk: Any) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def said(text: str, name: str = "content") -> bytes:
    return event({"choices": [{"index": 0, "delta": {name: text}}]})


def end(reason: str = "stop", **told: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], **told})


DONE = b"data: [DONE]\n\n"


def usage(tokens: int, prompt: int = 3, **more: Any) -> bytes:
    counts = {"completion_tokens": tokens, "prompt_tokens": prompt, **more}
    return event({"choices": [], "usage": counts})


@contextmanager
def serving() -> Iterator[tuple[Script, Address]]:
    script = Script()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            script.asked.append((self.path, None))
            if self.path == "/health":
                self.answer(script.health, b"{}")
            elif isinstance(script.models, bytes):
                self.answer(script.status, script.models)
            else:
                self.answer(script.status, json.dumps(script.models).encode())

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            script.asked.append((self.path, json.loads(self.rfile.read(length))))
            if not script.chunks:
                self.answer(script.status, script.body)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            try:
                for chunk in script.chunks:
                    if callable(chunk):
                        chunk()
                    else:
                        self.wfile.write(chunk)
                        self.wfile.flush()
            except OSError:
                script.hung_up.set()

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield script, Address("127.0.0.1", server.server_port, "/v1")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
