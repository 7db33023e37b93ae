"""``python tests/perf/app.py``: the path of every measure, and mistakes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from appcost import Plan

import app

TINY = {"seconds": 0.2, "keys": 4, "characters": 3_000, "line": 500, "turns": 4, "settle": 0.1}


@pytest.mark.long
@pytest.mark.slow
def test_every_measure_has_a_value(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.Plan", partial(Plan, **TINY))
    monkeypatch.setattr("stage.IMPORTED", 0.0)
    monkeypatch.setenv("MACSPEC_HOME", str(tmp_path / "own"))
    out = tmp_path / "app.json"
    assert app.main(["--repeats", "1", "--max-tokens", "128", "--out", str(out)]) == 0
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
    text, notices = capfd.readouterr()
    assert "worst freeze, 3,000 characters streamed" in text
    assert "held: " in text
    assert f"report: {out}" in notices
    assert not (tmp_path / "own" / "data").exists()


def test_a_pair_that_is_not_there(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert app.main(["--only", "start", "--target", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "speed,colour"], "'colour' is not measured: choose from speed,core"),
        (["--only", "speed,"], "not a list of names"),
        (["--repeats", "0"], "whole number"),
        (["--max-tokens", "8"], "whole number"),
        (["--out", "report"], "ends in .json"),
    ],
)
def test_mistakes_are_one_line(
    capfd: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert app.main(arguments) == 2
    assert words in capfd.readouterr().err
