"""Reports as files: all that is needed to repeat them, and nobody's text."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from reports import COSTS, measured, report, results

from macspec.bench import document as record
from macspec.bench.cells import Ratio
from macspec.bench.redact import redacted
from macspec.bench.report import head, notes, page
from macspec.errors import BadOptionError
from macspec.kernels import Kernels
from macspec.models import Pair

SPEEDS = {"plain": 50.0, "auto": 80.0}


def test_a_report_is_read_as_it_was_written(pocket: Pair, tmp_path: Path) -> None:
    found = report(pocket, SPEEDS, load=[0.1, 0.2, 0.3])
    path = tmp_path / "deep" / "report.json"
    record.write(path, json.dumps(found))
    assert record.load(path) == json.loads(json.dumps(found))
    assert record.cells_of(found) == list(results(measured(pocket, SPEEDS))[0])
    assert found["costs"] == COSTS
    assert [it.name for it in path.parent.iterdir()] == ["report.json"]


def test_everything_that_is_needed_to_repeat_it_is_there(pocket: Pair) -> None:
    found = report(pocket, SPEEDS)
    assert found["command"] == ["macspec", "bench"]
    assert found["machine"]["chip"]
    assert found["machine"]["memory_bytes"] > 0
    assert all(found["machine"]["versions"][name] for name in ("macspec", "mlx", "mlx-lm"))
    assert found["models"]["target"]["config_sha256"]
    assert found["protocol"]["end_of_text"] == "respected"
    assert found["conditions"] == [
        {"at": 0.0, "supply": "mains", "charge": 80, "thermal": "nominal"}
    ]
    assert {it["seed"] for it in found["samples"] if it["repeat"] == 0} == set(range(1, 11))
    assert all(it["digest"] for it in found["questions"])
    assert found["ended"] == "all"
    assert found["replies"] == found["replies_wanted"] == len(found["samples"])


def test_no_text_unless_it_is_asked_for(pocket: Pair) -> None:
    silent = json.dumps(report(pocket, SPEEDS))
    assert "secret" not in silent
    assert '"words"' not in silent
    assert '"ids"' not in silent
    telling = report(pocket, SPEEDS, mask=redacted)
    assert telling["questions"][0]["prompt"] == [{"role": "user", "content": "secret words"}]
    assert telling["samples"][0]["reply"] == "words"


def test_text_that_is_asked_for_is_masked(pocket: Pair) -> None:
    found = report(pocket, SPEEDS, mask=lambda text: text.replace("secret", "[masked]"))
    assert "secret" not in json.dumps(found)


def test_models_are_told_without_their_folders(pocket: Pair, tmp_path: Path) -> None:
    assert str(pocket.target.path.parent) not in json.dumps(report(pocket, SPEEDS))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot read"),
        ("not JSON", "cannot be used"),
        ("[]", "not a report of macspec bench"),
        ('{"kind": "other"}', "not a report of macspec bench"),
        ('{"kind": "macspec bench", "format": 99}', "its format is 99"),
        ('{"kind": "macspec bench", "format": 1, "cells": [{}]}', "cannot be used"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "report.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadOptionError, match=words):
        record.load(path)


def test_a_report_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadOptionError, match="cannot write"):
        record.write(tmp_path / "file" / "report.json", "{}")


def test_what_is_said_beside_the_tables(pocket: Pair) -> None:
    found = report(pocket, SPEEDS, load=[0.1, 0.2, 0.3], energy="there is no meter")
    said = "\n".join([*head(found), *notes(found)])
    for words in ("on mains", "thermal pressure nominal", "load before 0.10", "prompts: 10",
                  "energy not measured: there is no meter", "seed 1"):  # fmt: skip
        assert words in said
    found["ended"], found["replies"] = "interrupted", 7
    assert "INTERRUPTED (7 of 120 replies)" in "\n".join(head(found))
    found["profile"] = {"auto": {"0": {"rounds": 3, "draft_ms": 1.0, "verify_ms": 2.0,
                                       "host_ms": 0.5, "round_ms": 3.5}}}  # fmt: skip
    found["aa"] = [{"temperature": 0.0, "forced": False, "runs": 1, "held": 1, "ratios": [
        asdict(Ratio(1.0, 0.9, 1.1, 6, 18, "tasks"))]}]  # fmt: skip
    found["not_answered"] = {"server: it cannot": 3}
    fork = {"arm": "auto", "question": "chat-1", "temperature": 0.0, "repeat": 1, "position": 4,
            "gap": 2.0, "near_tie": False}  # fmt: skip
    found["forks"] = [{**fork, "near_tie": True}, *[fork] * 7]
    said = "\n".join(notes(found))
    assert "auto at 0: 3.5 ms per round = draft 1.0 + verify 2.0 + host 0.5, over 3 rounds" in said
    assert "1.00 is in the interval in 1 of 1 runs" in said
    assert "3 times not answered by server: it cannot" in said
    assert said.count("NOT EQUAL: auto on chat-1 at 0, repeat 2, diverges at token 4: gap 2") == 5
    assert "NOT EQUAL: 2 more" in said


def test_a_page_has_all_tables(pocket: Pair) -> None:
    found: dict[str, Any] = report(pocket, SPEEDS)
    text = page(found)
    assert text.startswith("# macspec bench\n")
    assert "| arm | tok/s | vs plain |" in text
    assert "| chat | 1." in text
    assert "where the time went" in text
    assert Kernels().state in found["models"]["kernels"]
