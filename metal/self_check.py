"""The self-check of kernels, on the machine that they run on and before anything depends on them.

Kernels cannot be tested in advance on every GPU. So every variant that a pair could use is compiled
and run here, compared with its portable reference and with recorded results, and timed against what
MLX does instead. A variant that fails, does not compile or is slower is not used.

Variants are checked in a child process (``checker.py``). If it dies, hangs or loses the GPU,
another one tries the variant once more; only what happens twice is kept, and only while the GPU
still answers to MLX's own kernels.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from macspec.errors import QUOTED
from macspec.plaintext import one_line

from .outcomes import Outcome, Outcomes, restored

PROGRAM = (sys.executable, "-P", "-m", "macspec.metal.checker")
TICK = 0.25
"""Seconds between two chances of the caller to stop."""
STARTING = 120.0
"""Seconds in which the child must have started."""
LINGER = 2.0
"""Seconds to wait for a child that was killed."""
LIMIT = 30.0
"""Seconds in which a variant must be checked; the longest takes one or two."""


@dataclass(frozen=True, slots=True)
class Checking:
    """How far a self-check is."""

    done: int
    total: int


def self_check(
    jobs: Sequence[tuple[Any, int]],
    outcomes: Outcomes,
    *,
    program: Sequence[str] = PROGRAM,
    limit: float = LIMIT,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Checking, None, None]:
    """Check what was not checked before; ``outcomes`` then knows it.

    Leaving the iterator at any point ends the check there and keeps what was found. Nothing is
    checked while another process does so. If the GPU is lost, the check ends early.

    Args:
        jobs: each variant and how many matrices of its shape the model has.
        program: the child, before the argument of ``checker.main``.
        limit: seconds that a variant may take.
    """
    if all(str(variant) in outcomes.found for variant, _ in jobs):
        return
    with outcomes.held() as ours:
        if not ours:
            outcomes.cut_short = "another program checks kernels now"
            return
        missing = [job for job in jobs if str(job[0]) not in outcomes.found]
        # What may cost the GPU comes last.
        missing.sort(key=lambda job: outcomes.losses.get(str(job[0]), 0))
        total, died = len(missing), ""
        try:
            while missing:
                with closing(_Child(program, missing, limit, clock)) as child:
                    yield from _attend(child, missing, outcomes, total)
                    name = child.checking
                end = child.end
                if name is None and missing:
                    if end is not None:
                        outcomes.cut_short = end
                    if child.lost and died:
                        outcomes.lose(died)
                    return
                if name is not None and end is not None and name == died:
                    outcomes.found[name] = Outcome(f"{end}, twice")
                    missing.pop(0)
                died = name or ""
        finally:
            outcomes.save()


def _attend(
    child: _Child, missing: list[tuple[Any, int]], outcomes: Outcomes, total: int
) -> Iterator[Checking]:
    """Take in what a child finds, until it ends."""
    while child.end is None:
        yield Checking(total - len(missing), total)
        for message in child.messages():
            match message:
                case {"checking": str(name)}:
                    child.checking = name
                    outcomes.save(checking=name)
                case {"outcome": None}:
                    missing.pop(0)  # There was too little memory: another time.
                    child.checking = None
                case {"outcome": dict(found)}:
                    outcomes.found[child.checking or ""] = restored(**found)
                    missing.pop(0)
                    child.checking = None


class _Child:
    """A process that checks variants, one after the other."""

    def __init__(
        self,
        program: Sequence[str],
        jobs: Sequence[tuple[Any, int]],
        limit: float,
        clock: Callable[[], float],
    ) -> None:
        self.checking: str | None = None
        """The variant that it has begun and not ended."""
        self.end: str | None = None
        """How it ended, a clause; None while it runs."""
        self.lost = False
        """Whether the GPU did not answer at its start."""
        self._limit, self._clock = limit, clock
        self._heard = clock()
        self._buffer = b""
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self._process = subprocess.Popen(
            [*program, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        # A child that has died already shows that by its end.
        with suppress(BrokenPipeError):
            pickle.dump(list(jobs), self._process.stdin)
            self._process.stdin.close()

    def messages(self) -> list[dict[str, Any]]:
        """What it has sent within a tick; sets ``end`` if it has ended, or must be ended."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], TICK)
        if not ready:
            allowed = STARTING if self.checking is None else self._limit
            if self._clock() - self._heard > allowed:
                self.end = f"it did not end within {allowed:g} s"
            return []
        data = os.read(self._process.stdout.fileno(), 2**16)
        self._heard = self._clock()
        if not data:
            self._ended()
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        found = []
        for line in lines:
            with suppress(ValueError):  # Any library may print.
                found.append(json.loads(line))
                self.end = found[-1].get("fault", self.end)
                self.lost |= "lost" in found[-1]
        return found

    def close(self) -> None:
        """End it, whatever it is doing."""
        self._process.kill()
        # A process that waits for a broken driver cannot even be killed.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LINGER)
        for file in (self._process.stdin, self._process.stdout, self._said):
            if file is not None:
                file.close()

    def _ended(self) -> None:
        status = self._process.wait()
        how = "it ended the program"
        if status < 0:
            how += f" ({signal.Signals(-status).name})"
        self._said.seek(0)
        lines = [one_line(line) for line in self._said.read().decode(errors="replace").split("\n")]
        last = next((line for line in reversed(lines) if line), "")
        if self.end is None:
            self.end = f"{how}: {last[:QUOTED]}" if last else how
