"""Child processes that end with the process that started them, and whether one still runs."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def exit_with_parent(parent: int) -> None:
    """End this process when its parent ends, even while a library holds Python's lock.

    The closed pipe from the parent shows it too, unless nobody can read it. On Linux the signal
    comes when the thread that started this process ends, so that thread must live as long.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
    elif sys.platform == "darwin":
        threading.Thread(target=_await_exit, args=(parent,), daemon=True).start()


if sys.platform == "darwin":

    def _await_exit(parent: int) -> None:
        queue = select.kqueue()
        leaving = select.kevent(
            parent, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT
        )
        try:
            queue.control([leaving], 1, None)
        except ProcessLookupError:
            pass  # It has ended already.
        except OSError:
            return
        os._exit(0)


def state_of(process: int) -> str:
    """A process's state as ``ps`` has it: T: stopped, Z: ended; empty: there is none."""
    if sys.platform == "linux":
        try:
            stat = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return ""
        return stat.rpartition(")")[2].split()[0].upper()
    command = ("ps", "-o", "state=", "-p", str(process))
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()[:1]
