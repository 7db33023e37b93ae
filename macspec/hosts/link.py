"""The connection of the engine with another rank: lines of JSON, and signs of life in between.

What the ranks compute together goes through ``mx.distributed``; here go the commands for it.
"""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from .lost import ENDED, PATIENCE, SILENT

BEAT = 0.5
"""Seconds between two signs of life."""

CHUNK = 2**16

MISSED = round(PATIENCE / BEAT)
"""Signs of life in a row without which the other end counts as lost."""


class Link:
    """One end of a connection. Messages are lists of plain values, sent by one thread.

    Args:
        lost: called once, on a thread of its own, with how the other end was lost.
    """

    def __init__(self, connection: socket.socket, lost: Callable[[str], None]) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(PATIENCE)
        self._connection, self._lost = connection, lost
        self._messages: SimpleQueue[Any] = SimpleQueue()
        self._sending = threading.RLock()  # what is forgotten may say so in the middle of a message
        self._closed = threading.Event()
        self.sent = 0
        """Messages so far."""
        self.joining = False
        """Whether silence means nothing: MLX holds Python's lock while it connects the ranks."""
        for work in (self._read, self._beat):
            threading.Thread(target=work, name="rank", daemon=True).start()

    def send(self, *message: Any) -> None:
        """Send a message; that nobody reads it any more is found by the reader."""
        self.sent += 1
        self._write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def receive(self, seconds: float | None = None) -> Any:
        """Wait for the next message; None where it does not come in time."""
        with suppress(Empty):
            return self._messages.get(timeout=seconds)
        return None

    def close(self) -> None:
        """Hang up."""
        self._closed.set()
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _write(self, line: bytes) -> None:
        with self._sending, suppress(OSError):
            self._connection.sendall(line)

    def _beat(self) -> None:
        while not self._closed.wait(BEAT):
            self._write(b"\n")

    def _read(self) -> None:
        how, held, missed = ENDED, b"", 0
        with suppress(OSError, ValueError):
            while missed < MISSED:
                if not select.select([self._connection], [], [], BEAT)[0]:
                    # One, however long this process itself stood still.
                    missed += not self.joining
                    continue
                if not (data := self._connection.recv(CHUNK)):
                    break
                missed = 0
                *lines, held = (held + data).split(b"\n")
                for line in filter(None, lines):
                    self._messages.put(json.loads(line))
            else:
                how = SILENT
        if not self._closed.is_set():
            self._closed.set()
            self._lost(how)
