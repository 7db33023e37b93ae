"""``macmon pipe``: watts once a second as JSON lines, from a program that the user installed.

It reads IOReport and the SMC without special rights, and adds the whole machine's watts. What it
prints are mean watts since its line before, so joules are watts times the time between two lines.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from .source import PowerError, Rail, Reading

FIELDS = {
    "gpu": "gpu_power",
    "cpu": "cpu_power",
    "dram": "ram_power",
    "ane": "ane_power",
    "system": "sys_power",
}

PERIOD_MS = 1000
LONGEST_LINE = 1 << 16
PATIENCE = 5.0
"""Seconds until the first line, at most."""

MACH_O = (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""How programs for the Mac begin. A package of the same name on the Python package index is a web
server, and is a script."""


class Macmon:
    """macmon in a child process that ends with this one, since it then has nobody to write to.

    Args:
        command: how to start it; None: the program on the PATH.
    """

    name = "macmon"
    basis = "the whole machine, by macmon"

    def __init__(self, command: Sequence[str] | None = None) -> None:
        self._command = command
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._first = threading.Event()
        self._seconds: float | None = None
        self._joules: dict[str, float] = {}
        self._failed: str | None = None
        self.rails: tuple[Rail, ...] = ()

    def available(self) -> str | None:
        if self._child is not None:
            return None
        command = self._command
        if command is None:
            path = shutil.which("macmon") if sys.platform == "darwin" else None
            if path is None:
                return "macmon is not installed: brew install macmon"
            if not _is_program(path):
                return f"{path} is another program of that name: brew install macmon"
            command = [path, "pipe", "-i", str(PERIOD_MS)]
        try:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for macspec alone
            )
        except OSError as error:
            return f"macmon cannot be started: {error.strerror}"
        threading.Thread(target=self._follow, args=[self._child], daemon=True).start()
        self._first.wait(PATIENCE)
        if not self.rails:
            self.close()
            return f"macmon says nothing: {self._failed or f'no line for {PATIENCE:.0f} s'}"
        return None

    def read(self) -> Reading:
        with self._lock:
            if self._failed is not None:
                raise PowerError(self._failed)
            if self._child is None or self._seconds is None:
                raise PowerError("the source is closed")
            return Reading(self._seconds, dict(self._joules))

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with suppress(ProcessLookupError):
                child.kill()
            child.wait()

    def _follow(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        with child.stdout as lines:
            while line := lines.readline(LONGEST_LINE):
                now = time.monotonic()
                try:
                    record = json.loads(line)
                    watts = {
                        rail: float(record[field])
                        for rail, field in FIELDS.items()
                        if isinstance(record.get(field), int | float)
                    }
                except (ValueError, AttributeError):
                    continue
                self._count(now, watts)
        status = child.wait()
        with self._lock:
            self._failed = f"macmon ended with status {status}"
        self._first.set()

    def _count(self, now: float, watts: dict[str, float]) -> None:
        with self._lock:
            if self._seconds is None:
                self._joules = dict.fromkeys(watts, 0.0)
                self.rails = tuple(
                    Rail(name, batched=name in ("cpu", "dram", "ane"), contains=name == "system")
                    for name in watts
                )
            else:
                for name in self._joules:
                    self._joules[name] += max(watts.get(name, 0.0), 0.0) * (now - self._seconds)
            self._seconds = now
        self._first.set()


def _is_program(path: str) -> bool:
    try:
        with open(os.path.realpath(path), "rb") as file:
            return file.read(4) in MACH_O
    except OSError:
        return False
