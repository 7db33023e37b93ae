"""Where a command writes: text or JSON lines to standard output, all else to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from ..errors import MacspecError
from ..plaintext import neutral, one_line, utf8


class Output:
    """Standard output in UTF-8: neutral text on a terminal, exact bytes everywhere else."""

    def __init__(self) -> None:
        if sys.stdout is None:
            raise MacspecError("standard output is closed")
        self.stream = sys.stdout.buffer
        self.terminal = sys.stdout.isatty()
        self._column = 0
        self.writing = False
        """Whether the one who reads is waited for."""

    def text(self, delta: str) -> None:
        """The next piece of a reply, cut anywhere."""
        if delta:
            self._column = 0 if delta.endswith("\n") else 1
            self._write(utf8(neutral(delta) if self.terminal else delta))

    def end(self) -> None:
        """The reply is over: a terminal's next line starts at the left."""
        if self.terminal and self._column:
            self._column = 0
            self._write(b"\n")

    def json(self, record: Mapping[str, Any]) -> None:
        """One JSON object on a line, in ASCII."""
        line = json.dumps(record).replace("\x7f", "\\u007f")
        self._write(line.encode() + b"\n")

    def _write(self, data: bytes) -> None:
        self.writing = True
        try:
            self.stream.write(data)
            self.stream.flush()
        finally:
            self.writing = False

    def give_up(self) -> None:
        """Nobody reads: what was not taken yet goes nowhere, and no longer holds up the end."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.stream.fileno())
        os.close(nowhere)


def say(message: str) -> None:
    """One line for the user, on standard error."""
    if sys.stderr is not None:
        print(f"macspec: {one_line(message)}", file=sys.stderr, flush=True)


def show(table: str) -> None:
    """A block of lines for the user, on standard error."""
    if sys.stderr is not None:
        print(table, file=sys.stderr, flush=True)
