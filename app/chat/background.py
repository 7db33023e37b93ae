"""Child processes of the front end that write JSON lines: the model scan, and downloads."""

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
from macspec.models.scan import (
    EVENTS,
    FoundModel,
    MachineMemory,
    OpenedModel,
    PairFit,
    ScanEvent,
    ScanListed,
)
from macspec.plaintext import one_line

GRACE = 2.0
"""Seconds that a process has to end by itself before it is killed."""

LONGEST = 4096
"""Bytes at the end of its standard error that are read."""

# Not from the current folder, where anything may be named macspec.
PYTHON = (sys.executable, "-P", "-m")

PULL = (*PYTHON, "macspec", "models", "pull", "--json")

SCAN = (*PYTHON, "macspec.models.scan")


class JsonProcess:
    """A process that writes one JSON object a line, and perhaps an error in its last line.

    Its pipe is read by a thread: a subprocess of asyncio leaves warnings behind when the loop ends.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        self.error = ""
        """The last line of standard error, if it failed by itself; neutral."""

    async def records(self) -> AsyncIterator[dict[str, Any]]:
        """What it writes, until it ends. It is ended when the reader leaves."""
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
                    errors.seek(max(os.fstat(errors.fileno()).st_size - LONGEST, 0))
                    last = errors.read().rstrip().rpartition(b"\n")[2]
                    text = one_line(last.decode(errors="replace"))
                    self.error = text.removeprefix("macspec: ").removeprefix("error: ")
            finally:
                self.end()
                atexit.unregister(self.end)

    def end(self) -> None:
        """End the process if it runs, without waiting for that."""
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


class Download:
    """A download of models from the hub by their ids; ``run`` it once.

    What has arrived when it is cancelled or breaks is kept, and the next download resumes there.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.state = "asking"
        """asking, downloading, waiting, done, cancelled or failed."""
        self.message = ""
        """Why it waits or failed, and what to do; neutral."""
        self.done = 0
        """Bytes that have arrived."""
        self.total = 0
        """Bytes of all models; 0 while unknown."""
        self.rate = 0.0
        """Bytes per second, over the last seconds."""
        self._present = 0
        self._parts: dict[str, int] = {}
        self._complete = 0
        self._cancelled = False
        self._process = JsonProcess([*PULL, *names])

    @property
    def active(self) -> bool:
        return self.state not in ("done", "cancelled", "failed")

    async def run(self) -> AsyncIterator[None]:
        """Download, and yield after every change; errors of the hub are not raised."""
        async for record in self._process.records():
            self._take(record)
            yield
        if self.active:
            self.state = "cancelled" if self._cancelled else "failed"
            self.message = self._process.error or "the download ended unexpectedly: try again"
            if self._complete == len(self.names):
                self.state, self.message = "done", ""
        yield

    def cancel(self) -> None:
        """Stop it; what has arrived is kept."""
        self._cancelled = True
        self._process.end()

    def line(self) -> str:
        names = " and ".join(one_line(name).rpartition("/")[2] for name in self.names)
        match self.state:
            case "failed":
                return self.message
            case "cancelled":
                return f"cancelled; {size(self.done)} kept for next time: {names}"
            case "done":
                return f"downloaded {names} ({size(self.total)})"
            case "waiting":
                return f"{self.message}: {names}"
        if not self.total:
            return f"asking the hub: {names}"
        parts = [f"{self.done / self.total:.0%} of {size(self.total)}"]
        if self.rate > 0:
            left = _duration((self.total - self.done) / self.rate)
            parts += [f"{size(self.rate)}/s", f"{left} left"]
        return f"{', '.join(parts)}: {names}"

    def _take(self, record: dict[str, Any]) -> None:
        kind = record.get("event")
        if kind == "listed":
            self.total, self._present = int(record["total"]), int(record["present"])
            self.done, self.state = self._present, "downloading"
        elif kind == "progress":
            self.state, self.message = "downloading", ""
            self.rate = float(record["rate"])
            self._count(str(record["model"]), int(record["done"]))
        elif kind == "retrying":
            self.state = "waiting"
            why = one_line(str(record["reason"]))
            self.message = f"connection lost ({why}), retrying in {record['seconds']:g} s"
        elif kind == "pulled":
            self._complete += 1
            self._count(str(record["model"]), int(record["total"]))

    def _count(self, model: str, done: int) -> None:
        self._parts[model] = done
        self.done = min(max(self._present, sum(self._parts.values())), self.total)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class ModelScan:
    """The models of the hub's cache and of some folders; ``run`` it as often as wanted.

    What it found stays until something newer is known.
    """

    def __init__(self) -> None:
        self.found: dict[str, FoundModel] = {}
        """By name."""
        self.opened: dict[str, OpenedModel] = {}
        self.fits: dict[tuple[str, str], PairFit] = {}
        """By target and draft."""
        self.limit: int | None = None
        """Bytes for models; None while unknown."""
        self.listed = False
        """Whether ``found`` is complete."""
        self.complete = False
        """Whether every model was opened and compared."""
        self.trouble = ""
        """Why the last scan failed; neutral."""
        self._compared: dict[str, str] = {}
        """Stamps by name of the models that were compared."""

    async def run(self, folders: Sequence[str]) -> AsyncIterator[None]:
        """Scan, and yield after every change."""
        process = JsonProcess([*SCAN, *folders])
        now: dict[str, FoundModel] = {}
        self.trouble = ""
        async for record in process.records():
            event = _event(record)
            match event:
                case FoundModel():
                    now[event.name] = event
                    continue
                case ScanListed():
                    self._list(now)
                    if self.complete:
                        process.end()
                case MachineMemory():
                    self.limit = event.limit
                case OpenedModel():
                    self.opened[event.name] = event
                case PairFit():
                    self.fits[event.target, event.draft] = event
                case None:
                    self.trouble = one_line(str(record.get("message", "")))
            yield
        if process.error:
            self.trouble = process.error
        elif self.listed:
            self.complete = True
            self._compared = {it.name: it.stamp for it in self.found.values()}
        yield

    def _list(self, now: dict[str, FoundModel]) -> None:
        """Take over what was found, and forget what is known of models that have changed."""
        stamps = {it.name: it.stamp for it in now.values()}
        self.found, self.listed = now, True
        self.complete = self.complete and stamps == self._compared
        if not self.complete:
            same = {name for name, stamp in stamps.items() if self._compared.get(name) == stamp}
            self.opened = {name: it for name, it in self.opened.items() if name in same}
            self.fits = {pair: it for pair, it in self.fits.items() if same.issuperset(pair)}


def _event(record: dict[str, Any]) -> ScanEvent | None:
    kind = EVENTS.get(str(record.pop("event", "")))
    try:
        return None if kind is None else kind(**record)
    except TypeError:
        return None
