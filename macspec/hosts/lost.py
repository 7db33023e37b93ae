"""How an engine ends because another machine is lost: its last line tells the parent why.

``python -m macspec.hosts.lost ENGINE SECONDS NAME PROCESS OUTPUT ...`` ends an engine that cannot
notice it: it holds Python's lock while it joins a group.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from ..parent import state_of
from ..plaintext import one_line

LOST = "lost: "
"""Begins that line."""

LONGEST = 400
"""Bytes of a reason; a pipe takes the whole line in one piece."""

UNNAMED = "another machine has ended"
"""Where the process crashed before it could name the machine."""

APART = "the machines did not reach each other: check the ips in the hosts file"

ENDED, SILENT = "has ended", "no longer answers"
"""How a machine is lost."""

LOOK = 0.1
"""Seconds between two looks at the other ranks."""

PATIENCE = 4.0
"""Seconds without a sign of life after which a machine counts as lost."""

leaving = threading.RLock()
"""Held by the thread that found the first loss: what ends because of that is no reason."""


def say(reason: str) -> None:
    """Print the line, alone, though MLX's threads print pieces of lines at the same time."""
    os.write(2, f"\n{LOST}{one_line(reason) or UNNAMED}".encode()[:LONGEST] + b"\n")


def leave(reason: str) -> NoReturn:
    """End this process."""
    with leaving:
        say(reason)
        os._exit(1)


def last_line(output: int) -> str:
    """The last line in a file, in brackets; empty if there is none."""
    lines = os.pread(output, os.fstat(output).st_size, 0).decode(errors="replace").splitlines()
    said = next(filter(None, map(one_line, reversed(lines))), "")
    return f" ({said})" if said else ""


class Watch:
    """Looks at the processes that run ranks or are connected to them, every ``LOOK``."""

    def __init__(self) -> None:
        self._stopped: Counter[int] = Counter()
        """Looks in a row that found each of them stopped; this process takes none while it is
        stopped itself."""

    def how(self, process: int) -> str | None:
        """How a process is lost, as of now; None: it is not."""
        state = state_of(process)
        if state in ("", "Z"):
            return ENDED
        self._stopped[process] = self._stopped[process] + 1 if state == "T" else 0
        return SILENT if self._stopped[process] * LOOK > PATIENCE else None


@contextmanager
def guarded(seconds: float, ranks: Sequence[tuple[str, int, int]]) -> Iterator[None]:
    """End this process, which holds Python's lock, if one of the ranks is lost meanwhile.

    Args:
        seconds: that it may take.
        ranks: the name of each, the process that runs it or is connected to it, and the file with
            its output.
    """
    told = [str(it) for rank in ranks for it in rank]
    program = [sys.executable, "-P", "-m", "macspec.hosts.lost", str(os.getpid()), str(seconds)]
    outputs = [output for *_, output in ranks]
    guard = subprocess.Popen([*program, *told], stdin=subprocess.PIPE, pass_fds=outputs)
    try:
        yield
    finally:
        assert guard.stdin is not None
        guard.stdin.close()
        guard.wait()


def main(arguments: Sequence[str]) -> None:
    """Watch the ranks until standard input is closed."""
    engine, until = int(arguments[0]), time.monotonic() + float(arguments[1])
    ranks = list(zip(*(arguments[first::3] for first in (2, 3, 4)), strict=True))
    watch, reason = Watch(), ""
    while not reason and not select.select([0], [], [], LOOK)[0]:
        if time.monotonic() > until:
            reason = APART
        for name, process, output in ranks:
            if (how := watch.how(int(process))) is not None:
                said = last_line(int(output)) if how == ENDED else ""
                reason = f"{name} {how}{said}"
    if reason:
        say(reason)
        os.kill(engine, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
