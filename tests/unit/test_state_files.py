"""What macspec remembers may be damaged by anyone: then it is as if there were nothing."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hostile import VALUES

from macspec.checked import last_check, remember_check
from macspec.control import AcceptanceEstimate, Controller, ControlState, CostCurve
from macspec.io import read_json
from macspec.metal.outcomes import Outcome, Outcomes
from macspec.power.history import Idle, remember_idle, remembered_idle


def costs(path: Path) -> None:
    curve, acceptance = CostCurve({"draft": 0.1}), AcceptanceEstimate()
    state = ControlState(path, {"chip": "x"})
    state.load(curve, acceptance)
    if not path.exists():
        curve.learn("", 3, 100, 1.5)
        curve.set_parts("draft", 0.2, 0.1)
        state.save(curve, acceptance)
    Controller(curve, acceptance)
    for length in (0, 1000, 10**6):
        assert all(curve.round("", rows, length) > 0 for rows in (1, 8, 32))


def checks(path: Path) -> None:
    if not path.exists():
        remember_check("a", None, 7, passed=True, folder=path.parent)
    str(last_check("a", None, 7, folder=path.parent))


def idle(path: Path) -> None:
    if not path.exists():
        remember_idle(Idle("rapl", {"cpu": 1.0}, 10.0, 1e9), path.parent)
    remembered_idle(path.parent, now=1e9)


def verdicts(path: Path) -> None:
    outcomes = Outcomes(path, {"chip": "x"})
    for outcome in outcomes.found.values():
        assert outcome.speed is None or outcome.speed > 0
    if not path.exists():
        outcomes.found["a"] = Outcome(None, 1.0, 2.0)
        outcomes.save()


KINDS: dict[str, Callable[[Path], None]] = {
    "costs.json": costs,
    "checks.json": checks,
    "idle.json": idle,
    "verdicts.json": verdicts,
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        inner = list(value.items() if isinstance(value, dict) else enumerate(value))
    return [path] * bool(path) + [p for key, each in inner for p in places(each, (*path, key))]


@pytest.mark.parametrize("count", [15, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", KINDS)
def test_any_value_anywhere_is_survived(tmp_path: Path, name: str, count: int) -> None:
    path, use, choice = tmp_path / name, KINDS[name], random.Random(count)
    use(path)
    whole = json.loads(path.read_text())
    for _ in range(count):
        changed = deepcopy(whole)
        *holders, last = choice.choice(places(changed))
        holder = changed
        for key in holders:
            holder = holder[key]
        holder[last] = choice.choice(VALUES)
        path.write_text(json.dumps(changed))
        use(path)


CONTENTS = {
    "nothing": b"",
    "depth": b"[" * 200_000,
    "bytes": b"\xff\x00",
    "infinity": b"1e999",
    "a number": b"7",
    "null": b"null",
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("what", CONTENTS)
def test_what_is_no_document_is_survived(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / name).write_bytes(CONTENTS[what])
    KINDS[name](tmp_path / name)


def test_only_small_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"[" + b" " * 2**25 + b"]")
    for path in (tmp_path / "pipe", tmp_path / "large", tmp_path, Path("/dev/zero")):
        assert read_json(path) is None
