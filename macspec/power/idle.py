"""What the machine takes when nothing computes, so that the net can be told from the gross."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ..config import state_folder

AGE = 24 * 3600.0
"""Seconds after which a baseline that was kept is too old."""


@dataclass(frozen=True, slots=True)
class Idle:
    """A baseline."""

    source: str
    """The source that it was read from."""
    watts: Mapping[str, float]
    """By rail, of those that moved."""
    seconds: float
    """How long it was measured."""
    at: float
    """When, in seconds of the calendar."""


def remembered_idle(folder: Path | None = None, now: float | None = None) -> Idle | None:
    """The baseline of an earlier session, if there is one that is not too old.

    Args:
        folder: where it lies; None: in the user's state folder.
        now: seconds of the calendar; None: now.
    """
    try:
        record = json.loads(_file(folder).read_bytes())
        watts = {str(rail): float(value) for rail, value in record["watts"].items()}
        idle = Idle(str(record["source"]), watts, float(record["seconds"]), float(record["at"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    age = (time.time() if now is None else now) - idle.at
    return idle if 0 <= age <= AGE else None


def remember_idle(idle: Idle, folder: Path | None = None) -> None:
    """Keep a baseline for later sessions; without a word where that is not possible."""
    file = _file(folder)
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".idle-")
        try:
            with os.fdopen(descriptor, "w") as stream:
                json.dump(asdict(idle), stream)
            os.replace(name, file)
        except OSError:
            os.unlink(name)
            raise


def _file(folder: Path | None) -> Path:
    return (folder or state_folder()) / "idle.json"
