"""``macspec bench specbench``: stopped, gone on with, shown, and put into a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import benchpage
import pytest

from macspec.bench.spectables import TASKS
from macspec.control import AcceptanceEstimate, CostCurve

ROOT = Path(__file__).parents[2]

PAGE = "# Title\n\n<!-- results: spec -->\n<!-- end of results -->\n\nThe end.\n"


def known_costs() -> dict[str, Any]:
    curve = CostCurve()
    for length in (10, 200):
        while missing := curve.missing(length, ["draft"]):
            for name, depth in missing:
                curve.learn(name, depth, length, 1 + depth / 10)
    return {"costs": curve.as_dict(), "survival": AcceptanceEstimate().as_dict()}


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """A small file in Spec-Bench's form."""
    path = tmp_path / "question.jsonl"
    lines = []
    for number, category in enumerate(
        ("coding", "translation", "summarization", "qa", "math_reasoning", "rag")
    ):
        entry = {"question_id": number, "category": category, "turns": ["Hello, how are you?"]}
        lines.append(json.dumps({**entry, "reference": "I am well. " * 8}))
    path.write_text("\n".join(lines))
    return path


@pytest.mark.slow
def test_it_goes_on_where_it_was(
    macspec: Callable[..., Any], questions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "results" / "spec.json"
    command = ["bench", "specbench", str(questions), "--out", str(out), "--tasks", "1"]
    command += ["--repeats", "1", "--max-tokens", "4", "--depths", "2", "--temperature", "0.8"]
    outcome = macspec(*command, "--minutes", "0.0001")
    assert outcome.status == 0
    assert "run it again" in outcome.err
    document = json.loads(out.read_text())
    assert not document["complete"]
    # What this run may have learned, so that the next one need not measure costs.
    document["learned"] = {"0.8": known_costs()}
    out.write_text(json.dumps(document))
    page = tmp_path / "README.md"
    page.write_text(PAGE)
    arguments = ["--page", str(page), "--results", str(out.parent)]
    assert benchpage.main(arguments) == 2

    outcome = macspec(*command)
    assert outcome.status == 0
    assert "report: " in outcome.err
    assert "complete" in outcome.err
    text = outcome.out.decode()
    for words in ("summarization (forced)", "mt_bench", "temperature 0.8", "of 6 cells"):
        assert words in text
    document = json.loads(out.read_text())
    assert document["complete"]
    assert len(document["runs"]) == 2
    assert document["models"]["draft"]["name"] == "built-in draft"
    assert document["models"]["head"]["name"] == "built-in head"
    assert {question["task"] for question in document["questions"]} == set(TASKS)

    assert benchpage.main([*arguments, "--check"]) == 1
    assert page.read_text() == PAGE
    assert benchpage.main(arguments) == 0
    shown = page.read_text()
    assert "| summarization (forced) |" in shown
    assert shown.endswith("The end.\n")
    assert benchpage.main([*arguments, "--check"]) == 0

    document["rows"][-1][-1] += 1.0
    out.write_text(json.dumps(document))
    assert benchpage.main([*arguments, "--check"]) == 1

    outcome = macspec(*command, "--seed", "2")
    assert outcome.status == 2
    assert "measured with other plan" in outcome.error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.jsonl", "--out", "x.json"], "cannot read nowhere.jsonl"),
        (["nowhere.jsonl"], "--out"),
        (["a", "--out", "b", "--minutes", "0"], "not a number of minutes"),
        (["a", "--out", "b", "--depths", "1,1"], "not a list of depths"),
        (["a", "--out", "b", "--depths", "x"], "not a list of depths"),
    ],
)
def test_mistakes_are_one_line(
    macspec: Callable[..., Any], arguments: list[str], words: str
) -> None:
    outcome = macspec("bench", "specbench", *arguments)
    assert outcome.status == 2
    assert words in outcome.error


def test_the_readme_shows_what_was_measured() -> None:
    assert benchpage.main(["--check"]) == 0
    shown = {
        match["name"] for match in benchpage.BLOCK.finditer(benchpage.README.read_text("utf-8"))
    }
    assert shown == {file.stem for file in benchpage.RESULTS.glob("*.json")}


def test_a_page_without_its_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "README.md"
    page.write_text(PAGE)
    assert benchpage.main(["--page", str(page), "--results", str(tmp_path)]) == 2
    assert "cannot read" in capsys.readouterr().err
    assert page.read_text() == PAGE
