"""The log of what an engine's process prints."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from ..config.paths import state_folder
from ..errors import QUOTED
from ..hosts.lost import LOST, UNNAMED
from ..io import private_folder
from ..plaintext import one_line

SAID = re.compile(rb"^%s(.+)\n" % LOST.encode(), re.MULTILINE)

CUT_OFF = b"[ring] Too many send/recv errors"
"""Printed by MLX when a rank is gone; a race in it may crash the process before it says which."""

TAIL = 4096
"""Bytes of output in which the last line is looked for."""

LOG_LIMIT = 2**19
"""Bytes of a log file; the one before it is kept too."""


class Log:
    """A bounded log file that knows its last line; if it cannot be written, only the file is lost.

    Without a path it is ``engine.log`` in the user's state folder.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_folder() / "engine.log"
        self._tail = b""
        self.lost = ""
        """What the process said of a lost machine, however much was printed after it."""

    @property
    def last_line(self) -> str:
        """The last line with text, shortened."""
        lines = self._tail.decode(errors="replace").replace("\r", "\n").split("\n")
        return next(filter(None, map(_shortened, reversed(lines))), "")

    def begin(self, pid: int) -> None:
        """Mark the start of another process, which has no last line yet."""
        self.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} engine {pid}\n".encode())
        self._tail, self.lost = b"", ""

    def write(self, data: bytes) -> None:
        if not data:
            return
        text = self._tail + data
        if (said := SAID.search(text)) is not None:
            self.lost = _shortened(said[1].decode(errors="replace"))
        elif CUT_OFF in text and not self.lost:
            self.lost = UNNAMED
        self._tail = text[-TAIL:]
        data = data[-LOG_LIMIT:]
        with suppress(OSError):
            private_folder(self.path.parent)
            file = self._open()
            try:
                if os.fstat(file).st_size + len(data) > LOG_LIMIT:
                    os.replace(self.path, self.path.with_suffix(".log.1"))
                    os.close(file)
                    file = self._open()
                os.write(file, data)
            finally:
                os.close(file)

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _shortened(line: str) -> str:
    text = one_line(line)
    return text if len(text) <= QUOTED else text[: QUOTED - 1] + "…"
