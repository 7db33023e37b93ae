"""The engines running on this machine, and the memory each has planned."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..config.paths import state_folder
from ..io import LockedFile, is_locked, private_folder, read_json
from ..plaintext import one_line

PATIENCE = 2.0
"""Seconds to wait for another process that is registering."""


@dataclass(frozen=True, slots=True)
class Running:
    """Another engine, of this process or another."""

    pid: int
    pair: str
    planned: int
    """Bytes."""


class Registry:
    """A folder with one file per engine, locked while its process lives.

    The lock ends with the process, however that dies, so an unlocked file is removed. If the folder
    cannot be used, there are no other engines and entering does nothing.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or state_folder() / "engines"
        self._file: LockedFile | None = None

    def others(self) -> list[Running]:
        """The other running engines."""
        found = []
        with suppress(OSError):
            for path in sorted(self._folder.glob("*.json")):
                own = self._file is not None and path == self._file.path
                if not own and (running := _alive(path)) is not None:
                    found.append(running)
        return found

    def enter(self, pair: str, planned: int, limit: int) -> list[Running]:
        """Reserve ``planned`` bytes for this engine and return the engines in the way.

        If there are none, the memory is reserved. ``limit`` is for all engines together.
        """
        try:
            with self._alone():
                others = self.others()
                if others and planned + sum(other.planned for other in others) > limit:
                    return others
                entry = {"pid": os.getpid(), "pair": pair, "planned": planned}
                file = LockedFile(self._folder, ".json", json.dumps(entry).encode())
                self.leave()
                self._file = file
        except OSError:
            pass
        return []

    def leave(self) -> None:
        """Remove this engine."""
        if self._file is not None:
            self._file.remove()
        self._file = None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        private_folder(self._folder)
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until:
                with suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(0.01)
            yield
        finally:
            os.close(descriptor)


def _alive(path: Path) -> Running | None:
    """The engine of a file; a dead engine's file is removed."""
    if not is_locked(path):
        with suppress(OSError):
            path.unlink()
        return None
    try:
        entry = read_json(path)
        return Running(int(entry["pid"]), one_line(str(entry["pair"])), int(entry["planned"]))
    except (ValueError, LookupError, TypeError, ArithmeticError):
        return None
