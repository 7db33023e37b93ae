"""Holding off idle sleep while there is work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

CAFFEINATE = "/usr/bin/caffeinate"
"""Part of macOS: ``-i`` holds off idle sleep, ``-w`` until the given process ends."""


@contextmanager
def awake(wanted: bool = True, command: Sequence[str] | None = None) -> Iterator[None]:
    """Within it the machine does not fall asleep by itself; closing the lid still puts it to sleep.

    On a Mac through caffeinate, which ends with this process whatever happens to it; elsewhere,
    and where it cannot be started, nothing happens.

    Args:
        wanted: the setting ``power.keep_awake``.
        command: what holds off sleep; None: caffeinate on a Mac, nothing elsewhere.
    """
    if command is None and sys.platform == "darwin":
        command = [CAFFEINATE, "-i", "-w", str(os.getpid())]
    helper = _started(command) if wanted and command else None
    try:
        yield
    finally:
        if helper is not None:
            helper.terminate()
            helper.wait()


def _started(command: Sequence[str]) -> subprocess.Popen[bytes] | None:
    quiet = subprocess.DEVNULL
    try:
        # In a session of its own Ctrl-C does not reach it.
        return subprocess.Popen(
            command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
        )
    except OSError:
        return None
