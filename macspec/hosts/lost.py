"""How an engine ends because another machine is lost: its last line tells the parent why."""

from __future__ import annotations

import os
import threading
from typing import NoReturn

from ..plaintext import one_line

LOST = "lost: "
"""Begins that line."""

LONGEST = 400
"""Bytes of a reason; a pipe takes the whole line in one piece."""

leaving = threading.RLock()
"""Held by the thread that found the first loss: what ends because of that is no reason."""


def say(reason: str) -> None:
    """Print the line, alone, though MLX's threads print pieces of lines at the same time."""
    os.write(2, f"\n{LOST}{one_line(reason) or 'another machine'}".encode()[:LONGEST] + b"\n")


def leave(reason: str) -> NoReturn:
    """End this process."""
    with leaving:
        say(reason)
        os._exit(1)
