"""Which of macspec's kernels run in rounds whose end is not known yet.

They stand in a file mapped into memory, so that the parent of a process that dies knows them, too.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from .config.paths import cache_folder
from .io import private_folder, write_atomic

RUNS, RESTS = "+", "-"

RUNNING = ".running"
"""How the names of the files end."""

CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGTRAP)
"""Signals of a process that nobody ended."""

_numbers = count()


class InUse:
    """Kernels in flight, by round.

    Args:
        names: of all kernels there are.
        faults: the file that remembers what ran in a fault; None: nothing is written.
    """

    def __init__(self, names: Iterable[str] = (), faults: Path | None = None) -> None:
        self._rounds: list[set[str]] = [set()]
        """The newest last; there is always one."""
        self._faults = faults
        self._marks: mmap.mmap | None = None
        self._places: dict[str, int] = {}
        if faults is not None:
            with suppress(OSError):
                self._map(list(names), faults)

    @property
    def running(self) -> bool:
        """Whether any is in flight."""
        return any(self._rounds)

    def begin(self) -> set[str]:
        """A round begins; returns what will hold the names of its kernels."""
        self._rounds.append(set())
        return self._rounds[-1]

    def note(self, name: str) -> None:
        """The newest round is about to run a kernel."""
        newest = self._rounds[-1]
        if name not in newest:
            newest.add(name)
            if self._marks is not None:
                self._marks[self._places[name]] = ord(RUNS)

    def landed(self, round: set[str]) -> None:
        """A round is over, and with it those launched before it."""
        at = next((at for at, it in enumerate(self._rounds) if it is round), -1)
        over, self._rounds = self._rounds[: at + 1], self._rounds[at + 1 :] or [set()]
        for name in set().union(*over).difference(*self._rounds) if self._marks is not None else ():
            self._marks[self._places[name]] = ord(RESTS)  # type: ignore[index]

    def clear(self) -> None:
        """All rounds are over."""
        self.landed(self._rounds[-1])

    def blame(self, remember: bool = True) -> bool:
        """A fault of the GPU has ended all in flight; returns whether anything was."""
        running = sorted(set().union(*self._rounds))
        if running and remember and self._faults is not None:
            _remember(self._faults, running)
        self.clear()
        return bool(running)

    def _map(self, names: list[str], faults: Path) -> None:
        for old in _folder().glob(f"*{RUNNING}"):
            if _orphaned(old):
                old.unlink(missing_ok=True)
        path = _folder() / f"{os.getppid()}-{os.getpid()}-{next(_numbers)}{RUNNING}"
        lines = [f"{faults}\n", *(f"{RESTS}{name}\n" for name in names)]
        write_atomic(path, "".join(lines), make_folder=True)
        weakref.finalize(self, path.unlink, missing_ok=True)
        with path.open("r+b") as file:
            self._marks = mmap.mmap(file.fileno(), 0)
        at = 0
        for line, name in zip(lines, ["", *names], strict=True):
            self._places[name] = at
            at += len(line.encode())


def died(pid: int, status: int, hung: bool = False) -> bool:
    """A child of this process has ended, by a signal if ``status`` is negative. Remember which
    kernels it ran if it crashed or hung; returns whether there were any."""
    found = False
    for path, faults, running in _marked(pid):
        path.unlink(missing_ok=True)
        if running and (hung or -status in CRASHES):
            _remember(faults, running)
            found = True
    return found


def in_flight(pid: int) -> bool:
    """Whether a child of this process runs kernels now."""
    return any(running for *_, running in _marked(pid))


def _marked(pid: int) -> Iterator[tuple[Path, Path, list[str]]]:
    """Each file that a child has mapped, where faults are remembered, and what it runs."""
    for path in _folder().glob(f"{os.getpid()}-{pid}-*{RUNNING}"):
        with suppress(OSError, ValueError):
            faults, *kernels = path.read_text(encoding="utf-8").splitlines()
            yield path, Path(faults), [it[1:] for it in kernels if it.startswith(RUNS)]


def _orphaned(path: Path) -> bool:
    """Whether the parent that could read a file is gone."""
    try:
        parent = int(path.name.partition("-")[0])
        os.kill(parent, 0)
    except (ProcessLookupError, ValueError):
        return True
    except OSError:  # of another user
        return False
    return parent == 1


def _folder() -> Path:
    return cache_folder() / "kernels"


def _remember(faults: Path, running: list[str]) -> None:
    """Append a line to a file, which needs no lock; what cannot be written is not kept."""
    with suppress(OSError):
        private_folder(faults.parent)
        file = os.open(faults, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, json.dumps(running).encode() + b"\n")
        finally:
            os.close(file)
