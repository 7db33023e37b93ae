"""Which pairs ``macspec check`` has tested on this machine, and the results."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .config.paths import state_folder
from .io import read_json, write_atomic

KEPT = 50
"""Most pairs remembered."""


@dataclass(frozen=True, slots=True)
class Check:
    """The self-check of a pair."""

    at: float
    """Seconds since 1970."""
    passed: bool

    def __str__(self) -> str:
        try:
            when = datetime.fromtimestamp(self.at).strftime("%Y-%m-%d %H:%M")
        except (OverflowError, OSError, ValueError):
            when = "an unknown date"
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
    """Save the result of a self-check; silently skipped where that is impossible.

    Args:
        weights: bytes of both models, to distinguish conversions of the same name.
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
        write_atomic(file, json.dumps(newest), make_folder=True)


def last_check(
    target: str, draft: str | None, weights: int, folder: Path | None = None
) -> Check | None:
    """The last self-check of a pair, if it was with this macspec and this MLX."""
    entry = _known(_file(folder)).get(_key(target, draft, weights))
    try:
        if entry is None or entry["by"] != _versions():
            return None
        return Check(float(entry["at"]), entry["passed"] is True)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return None


def _key(target: str, draft: str | None, weights: int) -> str:
    return json.dumps([target, draft, weights])


def _file(folder: Path | None) -> Path:
    return (folder or state_folder()) / "checks.json"


def _known(file: Path) -> dict[str, Any]:
    known = read_json(file)
    return known if isinstance(known, dict) else {}


def _versions() -> str:
    found = []
    for name in ("macspec", "mlx", "mlx-lm"):
        try:
            found.append(version(name))
        except PackageNotFoundError:
            found.append("-")
    return " ".join(found)
