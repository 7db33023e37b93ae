"""``macspec bench``: a table that says whose numbers it uses, JSON, and errors in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
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


def test_a_result_is_a_line_of_json(macspec: Callable[..., Any]) -> None:
    outcome = macspec("bench", "simulate", "--curve", "m4-pro-12b-8bit", "--json")
    records = {it["trace"]: it for it in map(json.loads, outcome.out.splitlines())}
    assert records.keys() >= {"chat-0", "chat-0+head", "switching", "hopeless", "dspark"}
    assert all(record["whose"] and record["tokens"] for record in records.values())
    assert records["dspark"]["published"]["factor"] == 3.25
    assert records["chat-0"]["published"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulate", "--curve", "m9"], "there is no curve 'm9'; there are m4-pro-4bit, "),
        (["simulate", "--traces", "nowhere.json"], "cannot read nowhere.json"),
        (["dance"], "dance"),
    ],
)
def test_errors_are_one_line(macspec: Callable[..., Any], arguments: list[str], words: str) -> None:
    outcome = macspec("bench", *arguments)
    assert outcome.status == 2
    assert words in outcome.error
