"""The engines running on this machine, and the memory each has planned."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..config import state_folder
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

    Args:
        folder: None: in the user's state folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or state_folder() / "engines"
        self._path: Path | None = None
        self._lock: int | None = None

    def others(self) -> list[Running]:
        """The other running engines."""
        found = []
        with suppress(OSError):
            for path in sorted(self._folder.glob("*.json")):
                running = _alive(path) if path != self._path else None
                if running is not None:
                    found.append(running)
        return found

    def enter(self, pair: str, planned: int, limit: int) -> list[Running]:
        """Reserve memory for this engine, if it fits beside the others.

        Args:
            pair: its name for people.
            planned: bytes.
            limit: bytes for all engines together.

        Returns:
            The engines in the way; none: it is reserved.
        """
        try:
            with self._alone():
                others = self.others()
                if others and planned + sum(other.planned for other in others) > limit:
                    return others
                self._write({"pid": os.getpid(), "pair": pair, "planned": planned})
        except OSError:
            pass
        return []

    def leave(self) -> None:
        """Remove this engine."""
        if self._path is not None and self._lock is not None:
            with suppress(OSError):
                self._path.unlink()
            os.close(self._lock)
        self._path = self._lock = None

    def _write(self, entry: dict[str, object]) -> None:
        # Locked before it is renamed, so that nobody takes it for a dead engine's.
        lock, aside = tempfile.mkstemp(dir=self._folder)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.write(lock, json.dumps(entry).encode())
            path = Path(aside).with_suffix(".json")
            os.rename(aside, path)
        except OSError:
            os.unlink(aside)
            os.close(lock)
            raise
        self.leave()
        self._path, self._lock = path, lock

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            until = time.monotonic() + PATIENCE
            while not _locked(descriptor, fcntl.LOCK_EX) and time.monotonic() < until:
                time.sleep(0.01)
            yield
        finally:
            os.close(descriptor)


def _alive(path: Path) -> Running | None:
    """The engine of a file; a dead engine's file is removed."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        if _locked(descriptor, fcntl.LOCK_SH):
            path.unlink(missing_ok=True)
            return None
        entry = json.loads(os.read(descriptor, 2**16))
        pid, pair, planned = entry["pid"], one_line(str(entry["pair"])), entry["planned"]
        return Running(int(pid), pair, int(planned))
    except (OSError, ValueError, LookupError, TypeError):
        return None
    finally:
        os.close(descriptor)


def _locked(descriptor: int, how: int) -> bool:
    """Lock a file without waiting; whether that worked."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
