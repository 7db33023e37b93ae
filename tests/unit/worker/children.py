"""Child processes that tests start and look for."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

SCRIPTED = (sys.executable, str(Path(__file__).with_name("scripted_engine.py")))


def alive(pid: int) -> bool:
    """Whether a process still runs; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return not Path("/proc/self").exists()
    return state != "Z"


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether something becomes true before so long."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
