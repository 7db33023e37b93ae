"""Starting a server for a measurement, and ending it afterwards."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from ..errors import ServerError, brief
from .server import Server

PATIENCE = 180.0
"""Seconds for a server to load its model."""

BETWEEN = 0.1
"""Seconds between two looks whether it is there."""

FAREWELL = 10.0
"""Seconds for a server to end after it was asked to."""


class Started:
    """A server that a command starts, for as long as the ``with`` lasts.

    Args:
        command: the program and its arguments.
        server: what it will be.
        patience: seconds until it must answer.

    Raises:
        ServerError: on entering: something answers there already, the command cannot be started,
            ends, or takes too long.
    """

    def __init__(self, command: Sequence[str], server: Server, patience: float = PATIENCE) -> None:
        self._command, self.server, self._patience = list(command), server, patience
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if self.server.ready():
            raise ServerError(
                f"something answers at {self.server.address} already: end it, or leave out the "
                "command that starts a server"
            )
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ServerError(f"cannot start {self._name}: {brief(error)}") from None
        try:
            self._wait(self._process)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the server and whatever it started."""
        process, self._process = self._process, None
        if process is not None:
            _signal(process, signal.SIGTERM)
            try:
                process.wait(FAREWELL)
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                process.wait()
        self._log.close()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + self._patience
        while not self.server.ready():
            if process.poll() is not None:
                raise ServerError(
                    f"{self._name} ended with status {process.returncode}{self._last_line()}"
                )
            if time.monotonic() > until:
                raise ServerError(
                    f"{self._name} does not answer at {self.server.address} after "
                    f"{self._patience:g} s{self._last_line()}"
                )
            time.sleep(BETWEEN)

    def _last_line(self) -> str:
        """What the server said last."""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(self._log.tell() - 2000, 0))
        lines = self._log.read().decode(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        return f"; it said last: {brief(ValueError(last))}" if last else ""

    @property
    def _name(self) -> str:
        return shlex.join(self._command)


def _signal(process: subprocess.Popen[bytes], what: signal.Signals) -> None:
    """To the process and its children, which have a group of their own."""
    try:
        os.killpg(process.pid, what)
    except (ProcessLookupError, PermissionError):
        return
