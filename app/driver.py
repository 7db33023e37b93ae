"""The terminal that the screen is drawn on."""

from __future__ import annotations

import os
import sys
from typing import Any

from .terminaldriver import TerminalDriver


class ScreenDriver(TerminalDriver):
    """Draws on standard output, so that standard error may go to a file."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        assert sys.__stdout__ is not None
        self._file = sys.__stdout__


def refusal() -> str | None:
    """Why there is no screen here, in a clause; None: there can be one."""
    if os.environ.get("TERM", "") in ("dumb", "unknown"):
        return f"TERM is {os.environ['TERM']}"
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if stream is None or not stream.isatty():
            return f"standard {name} is no terminal"
    return None
