"""Which pairs have been through ``macspec check`` on this machine, and how that went."""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .config import state_folder

KEPT = 50
"""Pairs that are remembered."""


@dataclass(frozen=True, slots=True)
class Check:
    """A self-test of a pair."""

    at: float
    """Seconds since 1970."""
    passed: bool

    def __str__(self) -> str:
        try:
            when = datetime.fromtimestamp(self.at).strftime("%Y-%m-%d %H:%M")
        except (OverflowError, OSError, ValueError):
            when = "an unknown day"
        return f"{'passed' if self.passed else 'FAILED'} on {when}"


def remember_check(
    target: str,
    draft: str | None,
    weights: int,
    *,
    passed: bool,
    at: float | None = None,
    folder: Path | None = None,
) -> None:
    """Keep how a self-test went; without a word where that is not possible.

    Args:
        target, draft: the names of the models.
        weights: bytes of both, so that another conversion of the same name is another pair.
        at: seconds since 1970; None: now.
        folder: None: the user's state folder.
    """
    file = _file(folder)
    known = _known(file)
    key = _key(target, draft, weights)
    known.pop(key, None)
    known[key] = {"at": time.time() if at is None else at, "passed": passed, "by": _versions()}
    newest = dict(list(known.items())[-KEPT:])
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".checks-")
        try:
            with os.fdopen(descriptor, "w") as stream:
                json.dump(newest, stream)
            os.replace(name, file)
        except OSError:
            os.unlink(name)
            raise


def last_check(
    target: str, draft: str | None, weights: int, folder: Path | None = None
) -> Check | None:
    """How the last self-test of a pair went, if it was with this macspec and this MLX."""
    entry = _known(_file(folder)).get(_key(target, draft, weights))
    try:
        if entry is None or entry["by"] != _versions():
            return None
        return Check(float(entry["at"]), entry["passed"] is True)
    except (KeyError, TypeError, ValueError):
        return None


def _key(target: str, draft: str | None, weights: int) -> str:
    return json.dumps([target, draft, weights])


def _file(folder: Path | None) -> Path:
    return (folder or state_folder()) / "checks.json"


def _known(file: Path) -> dict[str, Any]:
    try:
        known = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _versions() -> str:
    found = []
    for name in ("macspec", "mlx", "mlx-lm"):
        try:
            found.append(version(name))
        except PackageNotFoundError:
            found.append("-")
    return " ".join(found)
