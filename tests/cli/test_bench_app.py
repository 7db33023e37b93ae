"""``macspec bench app``: the path of every measure, and mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from macspec.bench.app.plan import Plan

TINY = {"seconds": 0.2, "keys": 4, "characters": 3_000, "line": 500, "turns": 4, "settle": 0.1}


def test_every_measure_has_a_value(
    macspec: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("macspec.cli.benchapp.Plan", partial(Plan, **TINY))
    monkeypatch.setattr("macspec.bench.app.stage.IMPORTED", 0.0)
    monkeypatch.setenv("MACSPEC_HOME", str(tmp_path / "own"))
    out = tmp_path / "app.json"
    outcome = macspec("bench", "app", "--repeats", "1", "--max-tokens", "128", "--out", str(out))
    assert outcome.status == 0, outcome.err
    document = json.loads(out.read_text())
    assert document["complete"]
    assert list(document["measures"]) == [
        *("speed", "core", "panel", "start", "leave", "keys", "streamed", "opened", "line")
    ]
    for name, measure in document["measures"].items():
        assert len(measure["values"]) == 1
        assert measure["median"] > 0 or name in ("speed", "panel")
    (reply,) = document["replies"]
    assert reply["equal"]
    assert reply["run_tokens"] == reply["app_tokens"] == 128
    text = outcome.out.decode()
    assert "worst freeze, 3,000 characters streamed" in text
    assert "held: " in text
    assert f"report: {out}" in outcome.err
    assert not (tmp_path / "own" / "data").exists()


def test_a_pair_that_is_not_there(macspec: Callable[..., Any], tmp_path: Path) -> None:
    outcome = macspec("bench", "app", "--only", "start", "--target", str(tmp_path / "nowhere"))
    assert outcome.status == 2
    assert "nowhere" in outcome.error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "speed,colour"], "'colour' is not measured: choose from speed,core"),
        (["--only", "speed,"], "no list of names"),
        (["--repeats", "0"], "whole number"),
        (["--max-tokens", "8"], "whole number"),
        (["--out", "report"], "ends in .json"),
    ],
)
def test_mistakes_are_one_line(
    macspec: Callable[..., Any], arguments: list[str], words: str
) -> None:
    outcome = macspec("bench", "app", *arguments)
    assert outcome.status == 2
    assert words in outcome.error
