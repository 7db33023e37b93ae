"""``macspec bench``: a table that says whose numbers it uses, JSON, and errors in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_the_table_says_whose_the_numbers_are(macspec: Callable[..., Any]) -> None:
    outcome = macspec("bench", "simulate", "--curve", "m5-max-4bit")
    report = outcome.out.decode()
    assert outcome.status == 0
    assert "as reported by pierre427 (mlx#3791)" in report
    for words in ("chat-0 ", "recorded", "synthetic", "regret", "largest regret", "assumed"):
        assert words in report
    assert max(map(len, report.splitlines())) <= 100


def test_recorded_traces_can_be_played_back(macspec: Callable[..., Any], tmp_path: Path) -> None:
    out = str(tmp_path / "traces.json")
    options = ["--prompts", "2", "--max-tokens", "12"]
    assert macspec("bench", "record", "--out", out, *options).status == 0
    outcome = macspec("bench", "simulate", "--traces", out, "--curve", "m4-pro-4bit", "--json")
    assert outcome.status == 0
    records = [json.loads(line) for line in outcome.out.splitlines()]
    assert [record["trace"] for record in records] == ["chat-0", "chat-0.7", "chat-1"]
    assert all(record["whose"] and 0 < record["tokens"] <= 24 for record in records)


def test_a_forced_text(macspec: Callable[..., Any], tmp_path: Path) -> None:
    text, out = tmp_path / "a.py", tmp_path / "traces.json"
    text.write_text("def f(a):\n    return a\n" * 5)
    forced = ["--forced", str(text), str(text)]
    assert macspec("bench", "record", "--out", str(out), *forced).status == 0
    (trace,) = json.loads(out.read_text())["traces"]
    assert trace["kind"] == "forced"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulate", "--curve", "m9"], "there is no curve 'm9'; there are m4-pro-4bit, "),
        (["simulate", "--traces", "nowhere.json"], "cannot read nowhere.json"),
        (["record"], "--out"),
        (["record", "--out", "x", "--forced", "no", "file"], "cannot read no"),
        (["dance"], "dance"),
    ],
)
def test_errors_are_one_line(macspec: Callable[..., Any], arguments: list[str], words: str) -> None:
    outcome = macspec("bench", *arguments)
    assert outcome.status == 2
    assert words in outcome.error
