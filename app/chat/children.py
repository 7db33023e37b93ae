"""Helpers of the front end in processes of their own, which tell what they find in JSON lines."""

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
