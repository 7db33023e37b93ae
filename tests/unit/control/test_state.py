"""What earlier sessions learned: kept if it can be, and never in the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from macspec.control import AcceptanceEstimate, ControlState, CostCurve

HERE = {"chip": "M5 Max", "mlx": "0.32.2"}


def learned() -> tuple[CostCurve, AcceptanceEstimate]:
    curve, acceptance = CostCurve(), AcceptanceEstimate()
    curve.learn("", 3, 100, 1.7)
    curve.observe(None, 0, 100, 0.02)
    for _ in range(10):
        acceptance.observe("draft", 5, 3, 2)
    return curve, acceptance


def state(path: Path, made_for: dict[str, str] = HERE) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a new session would know."""
    curve, acceptance = CostCurve(), AcceptanceEstimate()
    ControlState(path, made_for).load(curve, acceptance)
    return curve.as_dict(), acceptance.as_dict()


NOTHING = (CostCurve().as_dict(), AcceptanceEstimate().as_dict())


def test_what_was_saved_is_known_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "state.json"
    assert state(path) == NOTHING
    curve, acceptance = learned()
    ControlState(path, HERE).save(curve, acceptance)
    costs, chances = state(path)
    assert costs == curve.as_dict()
    assert chances != {}
    assert [file.name for file in path.parent.iterdir()] == ["state.json"]


def test_stale_costs_are_forgotten_and_acceptance_is_not(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    ControlState(path, HERE).save(*learned())
    costs, chances = state(path, {**HERE, "mlx": "0.33"})
    assert costs == NOTHING[0]
    assert chances == state(path)[1] != {}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"format": 0}', '{"format": 6}', "\x00\xff", '{"format": 6, "survival"'
     ': {}, "made_for": {"chip": "M5 Max", "mlx": "0.32.2"}, "costs": {"rounds": 3}}'],
)  # fmt: skip
def test_a_file_that_is_something_else_is_ignored(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text, encoding="latin-1")
    assert state(path) == NOTHING
    ControlState(path, HERE).save(*learned())
    assert state(path) != NOTHING


@pytest.mark.parametrize("nonsense", ["nonsense", [[-600, 0.1]], [[1, 0, 0.1], [2]]])
@pytest.mark.parametrize("damage", ["replays", "rounds", "steps", "reading"])
def test_damaged_costs_leave_a_curve_as_it_was(tmp_path: Path, damage: str, nonsense: Any) -> None:
    path = tmp_path / "state.json"
    ControlState(path, HERE).save(*learned())
    stored = json.loads(path.read_text())
    stored["costs"][damage] = nonsense
    path.write_text(json.dumps(stored))
    assert state(path)[0] == NOTHING[0]


def test_what_an_earlier_version_stored_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    ControlState(path, HERE).save(*learned())
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "format": stored["format"] - 1}))
    assert state(path) == NOTHING


def test_what_cannot_be_written_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ControlState(tmp_path / "file" / "state.json", HERE).save(*learned())
    assert (tmp_path / "file").read_text() == ""
