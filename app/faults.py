"""Errors that nobody foresaw: a line for the user, and where they came from in a log."""

from __future__ import annotations

import time
import traceback
from contextlib import suppress
from pathlib import Path

from macspec.config import state_folder
from macspec.errors import brief
from macspec.worker.log import Log

REPORT = "please report it with the output of macspec check --report"


def log_path() -> Path:
    """Where they are logged."""
    return state_folder() / "app.log"


def unforeseen(error: BaseException) -> str:
    """Log an error, and say it in a line.

    Its message may quote the chat, so the log has only its kind and where it came from.
    """
    frames = "".join(traceback.format_tb(error.__traceback__))
    with suppress(OSError):
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        Log(log_path()).write(f"--- {stamp} {type(error).__name__}\n{frames}".encode())
    return f"unexpected {type(error).__name__}: {brief(error)} (a bug in macspec: {REPORT})"
