"""What the engine's process writes to its standard output and error, on disk and bounded."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from ..config import state_folder
from ..errors import QUOTED
from ..plaintext import one_line

LIMIT = 2**19
"""Bytes of a log file; the one before it is kept too."""


class Log:
    """A log that knows its last line. A disk that is full or read-only costs the file only.

    Args:
        path: None: ``engine.log`` in the user's state folder.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_folder() / "engine.log"
        self._tail = b""

    @property
    def last_line(self) -> str:
        """The last line that is not empty, shortened."""
        lines = self._tail.decode(errors="replace").replace("\r", "\n").split("\n")
        text = next((line for line in map(one_line, reversed(lines)) if line), "")
        return text if len(text) <= QUOTED else text[: QUOTED - 1] + "…"

    def begin(self, pid: int) -> None:
        """Write where another process begins; its last line is none yet."""
        self.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} engine {pid}\n".encode())
        self._tail = b""

    def write(self, data: bytes) -> None:
        """Append what came."""
        if not data:
            return
        self._tail = (self._tail + data)[-4096:]
        data = data[-LIMIT:]
        with suppress(OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self._open()
            try:
                if os.fstat(file).st_size + len(data) > LIMIT:
                    os.replace(self.path, self.path.with_suffix(".log.1"))
                    os.close(file)
                    file = self._open()
                os.write(file, data)
            finally:
                os.close(file)

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
