"""Child processes of the front end: downloads, and the scan for models."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from macspec.models.progress import size
from macspec.models.scan import EVENTS, FoundModel, MachineMemory, OpenedModel, PairFit, ScanListed
from macspec.plaintext import one_line

GRACE = 2.0
"""Seconds that a process has to end by itself before it is killed."""

COMPLAINT = 4096
"""Bytes of its errors that are looked at."""

# Not from the current folder, where anything may be called macspec.
PYTHON = (sys.executable, "-P", "-m")


class Child:
    """A process that writes a JSON object a line and may complain in the last line of its errors.

    Its pipe is read by a thread: a subprocess of asyncio cannot be left behind without a word
    when the loop ends.

    Args:
        command: the program and its arguments.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        self.complaint = ""
        """What it said last on standard error, if it failed by itself; neutral."""

    async def records(self) -> AsyncIterator[dict[str, Any]]:
        """What it writes, until it ends; ends it when the reader goes."""
        if self._ended:
            return
        loop, lines = asyncio.get_running_loop(), asyncio.Queue[bytes | None]()
        with tempfile.TemporaryFile() as errors:
            process = self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
            )

            def read() -> None:
                assert process.stdout is not None
                with suppress(RuntimeError), process.stdout:  # The loop may be closed by now.
                    for line in process.stdout:
                        loop.call_soon_threadsafe(lines.put_nowait, line)
                    process.wait()
                    loop.call_soon_threadsafe(lines.put_nowait, None)
                process.wait()

            threading.Thread(target=read, daemon=True).start()
            atexit.register(self.end)
            try:
                while (line := await lines.get()) is not None:
                    with suppress(ValueError):
                        record = json.loads(line)
                        if isinstance(record, dict):
                            yield record
                if process.returncode and not self._ended:
                    errors.seek(max(os.fstat(errors.fileno()).st_size - COMPLAINT, 0))
                    last = errors.read().rstrip().rpartition(b"\n")[2]
                    said = one_line(last.decode(errors="replace"))
                    self.complaint = said.removeprefix("macspec: ").removeprefix("error: ")
            finally:
                self.end()
                atexit.unregister(self.end)

    def end(self) -> None:
        """End the process, if it has begun and not ended; does not wait for that."""
        self._ended = True
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        threading.Thread(target=_wait_or_kill, args=(process,), daemon=True).start()


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()


PULL = (*PYTHON, "macspec", "models", "pull", "--json")

ASKING, FETCHING, WAITING, DONE, CANCELLED, FAILED = (
    "asking the hub",
    "fetching",
    "waiting",
    "done",
    "cancelled",
    "failed",
)
ENDED = (DONE, CANCELLED, FAILED)


class Download:
    """Models on their way from the hub; ``run`` it once.

    Args:
        names: ids on the hub.
        program: what fetches them.
    """

    def __init__(self, names: Sequence[str], *, program: Sequence[str] = PULL) -> None:
        self.names = tuple(names)
        self.state = ASKING
        """One of the constants above."""
        self.message = ""
        """Why it waits or failed, and what to do; neutral."""
        self.done = 0
        """Bytes that are here."""
        self.total = 0
        """Bytes of all of it; 0 where that is not known yet."""
        self.rate = 0.0
        """Bytes per second, over the last seconds."""
        self._present = 0
        self._parts: dict[str, int] = {}
        self._whole = 0
        self._cancelled = False
        self._child = Child([*program, *names])

    @property
    def active(self) -> bool:
        """Whether it is under way."""
        return self.state not in ENDED

    async def run(self) -> AsyncIterator[None]:
        """Fetch, and tell each time when something has changed; never raises for the hub's sake."""
        async for record in self._child.records():
            self._take(record)
            yield
        if self.active:
            self.state = CANCELLED if self._cancelled else FAILED
            self.message = self._child.complaint or "the download ended unexpectedly: try again"
            if self._whole == len(self.names):
                self.state, self.message = DONE, ""
        yield

    def cancel(self) -> None:
        """Have it end; what arrived stays for the next time."""
        self._cancelled = True
        self._child.end()

    def line(self) -> str:
        """How it is, in one line."""
        names = " and ".join(one_line(name).rpartition("/")[2] for name in self.names)
        if self.state == FAILED:
            return self.message
        if self.state == CANCELLED:
            return f"cancelled; the {size(self.done)} that arrived are kept: {names}"
        if self.state == DONE:
            return f"here ({size(self.total)}): {names}"
        if self.state == WAITING:
            return f"{self.message}: {names}"
        if not self.total:
            return f"asking the hub: {names}"
        parts = [f"{self.done / self.total:.0%} of {size(self.total)}"]
        if self.rate > 0:
            parts += [f"{size(self.rate)}/s", f"{_span((self.total - self.done) / self.rate)} left"]
        return f"{', '.join(parts)}: {names}"

    def _take(self, record: dict[str, Any]) -> None:
        kind = record.get("event")
        if kind == "listed":
            self.total, self._present = int(record["total"]), int(record["present"])
            self.done, self.state = self._present, FETCHING
        elif kind == "progress":
            self.state, self.message = FETCHING, ""
            self.rate = float(record["rate"])
            self._count(str(record["model"]), int(record["done"]))
        elif kind == "retrying":
            self.state = WAITING
            why = one_line(str(record["reason"]))
            self.message = f"the connection broke ({why}): again in {record['seconds']:g} s"
        elif kind == "pulled":
            self._whole += 1
            self._count(str(record["model"]), int(record["total"]))

    def _count(self, model: str, done: int) -> None:
        self._parts[model] = done
        self.done = min(max(self._present, sum(self._parts.values())), self.total)


def _span(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


SCAN = (*PYTHON, "macspec.models.scan")


class ModelScan:
    """The models of the hub's cache and of some folders; filled by ``run``, as often as wanted.

    What was found before stays until something newer is known.

    Args:
        program: what looks.
    """

    def __init__(self, *, program: Sequence[str] = SCAN) -> None:
        self._program = program
        self.found: dict[str, FoundModel] = {}
        """By name."""
        self.opened: dict[str, OpenedModel] = {}
        self.fits: dict[tuple[str, str], PairFit] = {}
        """By target and draft."""
        self.limit: int | None = None
        """Bytes for models; None while that is not known."""
        self.listed = False
        """Whether ``found`` is all that there is."""
        self.whole = False
        """Whether everything was opened and compared."""
        self.trouble = ""
        """Why the last survey came to nothing; neutral."""
        self._known: dict[str, str] = {}
        """Stamps, by name, of what was compared."""

    async def run(self, folders: Sequence[str]) -> AsyncIterator[None]:
        """Look again, and tell each time when more is known."""
        child = Child([*self._program, *folders])
        now: dict[str, FoundModel] = {}
        self.trouble = ""
        async for record in child.records():
            event = _event(record)
            match event:
                case FoundModel():
                    now[event.name] = event
                    continue
                case ScanListed():
                    self._list(now)
                    if self.whole:
                        child.end()
                case MachineMemory():
                    self.limit = event.limit
                case OpenedModel():
                    self.opened[event.name] = event
                case PairFit():
                    self.fits[event.target, event.draft] = event
                case None:
                    self.trouble = one_line(str(record.get("message", "")))
            yield
        if child.complaint:
            self.trouble = child.complaint
        elif self.listed:
            self.whole = True
            self._known = {it.name: it.stamp for it in self.found.values()}
        yield

    def _list(self, now: dict[str, FoundModel]) -> None:
        """Take over what lies where, and forget what is known of models that have changed."""
        stamps = {it.name: it.stamp for it in now.values()}
        self.found, self.listed = now, True
        self.whole = self.whole and stamps == self._known
        if not self.whole:
            same = {name for name, stamp in stamps.items() if self._known.get(name) == stamp}
            self.opened = {name: it for name, it in self.opened.items() if name in same}
            self.fits = {pair: it for pair, it in self.fits.items() if same.issuperset(pair)}


def _event(
    record: dict[str, Any],
) -> FoundModel | ScanListed | MachineMemory | OpenedModel | PairFit | None:
    kind = EVENTS.get(str(record.pop("event", "")))
    try:
        return None if kind is None else kind(**record)
    except TypeError:
        return None
