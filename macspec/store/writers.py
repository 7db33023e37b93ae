"""Which processes are writing a reply: a lock tells, and it goes with its process."""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path

SUFFIX = ".writer"


class Writers:
    """A folder with a locked file for each process that streams replies into a store.

    Where files cannot be locked, this process writes without a name and counts as dead to others:
    they take its reply for cut off until it saves it the next time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: int | None = None
        self.name: str | None = None
        """This process's name; None before ``enter``."""

    def enter(self) -> str | None:
        """Take a name and hold it until ``leave`` or this process ends."""
        if self._lock is None:
            with suppress(OSError):
                self._enter()
        return self.name

    def leave(self) -> None:
        """Give the name up."""
        if self._lock is not None and self.name is not None:
            with suppress(OSError):
                (self._folder / self.name).unlink()
            os.close(self._lock)
        self._lock = self.name = None

    def alive(self, name: str | None) -> bool:
        """Whether the process of that name still holds it."""
        if name is None or Path(name).name != name or not name.endswith(SUFFIX):
            return False
        try:
            descriptor = os.open(self._folder / name, os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return False

    def sweep(self) -> None:
        """Remove the files of dead processes."""
        with suppress(OSError):
            for path in self._folder.glob(f"*{SUFFIX}"):
                if not self.alive(path.name):
                    path.unlink(missing_ok=True)

    def _enter(self) -> None:
        # Locked before it has its name, so that nobody takes it for a dead one's.
        descriptor, aside = tempfile.mkstemp(dir=self._folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(aside, aside + SUFFIX)
        except OSError:
            os.close(descriptor)
            os.unlink(aside)
            raise
        self._lock, self.name = descriptor, Path(aside + SUFFIX).name
