"""The comparison on Spec-Bench: whole however often it is stopped, and fair to all arms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specarms import Clock, Scripted

from macspec.bench.arms import MLX_LM, MLX_LM_DRAFT
from macspec.bench.promptfile import from_file
from macspec.bench.questions import Question
from macspec.bench.sample import Sample
from macspec.bench.specbench import (
    ANSWER,
    MACSPEC,
    TASKS,
    TRIAL,
    Preset,
    SpecBench,
    SpecFile,
    _row,
    cells,
    chosen,
    read,
    tables,
    verdict,
)
from macspec.bench.tasks import Task
from macspec.control import AcceptanceEstimate, CostCurve
from macspec.errors import BadOptionError
from macspec.kernels import Kernels
from macspec.models import Pair

PRESET = Preset(temperatures=(0.0, 0.8), tasks=2, repeats=4, draws=1, max_tokens=12, depths=(1, 3))

QUESTIONS = [
    Question(
        f"{task}-{number}",
        Task(f"{task}-{number}", task, ({"role": "user", "content": "a"},), 12),
        (1, 2, 3),
        12,
        (4, 5, 6) if task in ("summarization", "rag") else None,
    )
    for task in TASKS
    for number in range(2)
]

SCRIPT = {
    # Tokens of a pass, and its seconds.
    MLX_LM: (1, 1.0),
    f"{MLX_LM_DRAFT}@1": (2, 2.0),
    f"{MLX_LM_DRAFT}@3": (2, 1.6),
    MACSPEC: (3, 1.5),
}


class ScriptedBench(SpecBench):
    """With arms that do what the script says."""

    def __init__(
        self, pair: Pair, clock: Clock, preset: Preset = PRESET, file: SpecFile | None = None
    ) -> None:
        self.scripted = {
            name: Scripted(name, clock, tokens, seconds, 3)
            for name, (tokens, seconds) in SCRIPT.items()
        }
        file = file or SpecFile(Path(), {})
        arms = list(self.scripted.values())
        super().__init__(pair, QUESTIONS, preset, file, clock=clock, arms=arms)


def samples_of(bench: SpecBench) -> list[Sample]:
    for _ in bench.run():
        pass
    return bench.file.samples


def opened(path: Path, pair: Pair, preset: Preset = PRESET) -> SpecFile:
    return SpecFile.open(path, pair, Kernels(), preset, QUESTIONS)


def test_every_arm_answers_every_question_once_a_repeat(pocket: Pair) -> None:
    bench = ScriptedBench(pocket, Clock())
    rows = samples_of(bench)
    assert bench.complete
    assert bench.left == 0
    keys = [(row.arm, row.question, row.temperature, row.repeat) for row in rows]
    assert len(set(keys)) == len(keys)
    cells = len(QUESTIONS) * len(PRESET.temperatures)
    assert len(rows) == cells * (len(PRESET.depths) + PRESET.repeats * 3)
    assert bench.scripted[MLX_LM].prepared == [0.0, 0.8]


def test_arms_follow_each_other_with_one_seed_and_in_turning_order(pocket: Pair) -> None:
    rows = [row for row in samples_of(ScriptedBench(pocket, Clock())) if row.repeat != TRIAL]
    laps = [rows[at : at + 3] for at in range(0, len(rows), 3)]
    for lap in laps:
        assert len({(row.question, row.temperature, row.repeat, row.seed) for row in lap}) == 1
        assert {row.arm for row in lap} == {MLX_LM, f"{MLX_LM_DRAFT}@3", MACSPEC}
    first = [lap[0].arm for lap in laps]
    assert first[0] != first[1] != first[2] != first[0]
    # Of one question, another arm comes first in each repeat.
    same = [lap[0].arm for lap in laps if lap[0].question == "qa-0" and not lap[0].temperature]
    assert len(set(same[:3])) == 3
    seeds = {row.seed for row in rows}
    assert len(seeds) == len(QUESTIONS) * PRESET.repeats


def test_where_replies_are_drawn_there_are_more_of_them(pocket: Pair) -> None:
    preset = replace(PRESET, repeats=2, draws=3)
    bench = ScriptedBench(pocket, Clock(), preset)
    rows = [row for row in samples_of(bench) if row.repeat != TRIAL]
    assert bench.complete
    forced = {it.id for it in QUESTIONS if it.forced is not None}
    for row in rows:
        mine = [it for it in rows if (it.arm, it.question) == (row.arm, row.question)]
        same = [it for it in mine if it.temperature == row.temperature]
        assert len(same) == (6 if row.temperature and row.question not in forced else 2)
        assert len({it.seed for it in same}) == len(same)


def test_the_rival_has_its_best_depth(pocket: Pair) -> None:
    bench = ScriptedBench(pocket, Clock())
    bench.scripted[f"{MLX_LM_DRAFT}@1"].seconds = 0.1
    arms = {row.arm for row in samples_of(bench) if row.repeat != TRIAL}
    assert arms == {MLX_LM, f"{MLX_LM_DRAFT}@1", MACSPEC}


def test_cells_say_what_the_script_did(pocket: Pair) -> None:
    found = list(cells(samples_of(ScriptedBench(pocket, Clock()))))
    assert [(cell["temperature"], cell["task"]) for cell in found] == [
        (temperature, task) for temperature in PRESET.temperatures for task in TASKS
    ]
    for cell in found:
        assert cell["forced"] == (cell["task"] in ("summarization", "rag"))
        assert (cell["questions"], cell["depth"]) == (2, 3)
        assert (cell["plain"]["tokens_per_pass"], cell["plain"]["tokens_per_s"]) == (1, 1)
        assert (cell["rival"]["tokens_per_pass"], cell["ours"]["tokens_per_pass"]) == (2, 3)
        assert cell["ours"]["tokens_per_s"] == pytest.approx(2)
        assert cell["over_plain"]["value"] == pytest.approx(2)
        assert cell["over_plain"]["low"] == pytest.approx(2)
        assert cell["over_rival"]["value"] == pytest.approx(1.6)
        assert cell["passes_over_rival"]["value"] == pytest.approx(1.5)
    slower, ahead = verdict(found)
    assert slower.endswith("in 12 of 12 cells")
    assert ahead.endswith("in 6 of 6 cells above temperature 0")


@pytest.mark.parametrize(
    ("tokens", "seconds", "words"),
    [(3, 3.2, "in 0 of 12 cells; not in mt_bench at 0, "), (1, 0.1, "in 12 of 12 cells")],
)
def test_a_cell_without_a_lead_says_so(
    pocket: Pair, tokens: int, seconds: float, words: str
) -> None:
    bench = ScriptedBench(pocket, Clock())
    ours = bench.scripted[MACSPEC]
    ours.tokens, ours.seconds = tokens, seconds
    slower, ahead = verdict(list(cells(samples_of(bench))))
    assert words in slower
    assert "in 0 of 6 cells above temperature 0; not in mt_bench at 0.8, " in ahead


@settings(deadline=None, max_examples=25)
@given(stops=st.lists(st.integers(0, 30), max_size=12))
def test_stops_change_nothing(pocket: Pair, stops: list[int]) -> None:
    whole = samples_of(ScriptedBench(pocket, Clock()))
    file = SpecFile(Path(), {})
    for stop in stops:
        bench = ScriptedBench(pocket, Clock(), file=file)
        laps: Iterator[None] = bench.run()
        for _ in range(stop):
            next(laps, None)
        bench.close()
    again = samples_of(ScriptedBench(pocket, Clock(), file=file))
    assert sorted(map(_row, again)) == sorted(map(_row, whole))


def test_a_run_ends_when_its_time_is_over(pocket: Pair) -> None:
    clock = Clock()
    bench = ScriptedBench(pocket, clock)
    for _ in bench.run(until=100.0):
        pass
    longest = 12 * (1.0 + 2.0 + 1.6 + 1.5)
    assert 100.0 <= clock.now < 100.0 + longest
    assert 0 < len(bench.file.samples) < len(samples_of(ScriptedBench(pocket, Clock())))
    assert list(bench.run(until=clock.now)) == []


def test_half_a_lap_is_not_kept(pocket: Pair) -> None:
    bench = ScriptedBench(pocket, Clock())
    rival = bench.scripted[f"{MLX_LM_DRAFT}@3"]
    write = rival.write

    def interrupted(*arguments: Any) -> Any:
        if len(rival.asked) == 5:
            raise KeyboardInterrupt
        return write(*arguments)

    rival.write = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        samples_of(bench)
    assert len(bench.file.samples) == 5 * len(PRESET.depths)


def test_a_lap_in_which_the_machine_slept_is_measured_again(pocket: Pair) -> None:
    bench = ScriptedBench(pocket, Clock())

    class Watch:
        calls = 0

        def jumped(self) -> bool:
            self.calls += 1
            return self.calls == 2

    bench._run._watch = Watch()  # type: ignore[assignment]
    rows = samples_of(bench)
    asked = bench.scripted[f"{MLX_LM_DRAFT}@1"].asked
    assert asked[0] == asked[1]
    assert len(rows) == len({(row.arm, row.question, row.temperature, row.repeat) for row in rows})


def test_a_file_is_gone_on_with(pocket: Pair, tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    for stop in (3, 30, 1000):
        file = opened(path, pocket)
        bench = ScriptedBench(pocket, Clock(), file=file)
        laps = bench.run()
        for _ in range(stop):
            next(laps, None)
        file.learned["0"] = {"costs": stop}
        file.save(bench, ["macspec"], 1.5)
        stored = read(path)
        assert stored["complete"] == (stop == 1000)
        assert ("learned" in stored) == (stop != 1000)
        assert len(stored["rows"]) == len(file.samples)
    assert [run["seconds"] for run in stored["runs"]] == [1.5] * 3
    assert len(stored["cells"]) == 12
    assert [it["over_plain"]["value"] for it in stored["cells"]] == pytest.approx([2] * 12)
    assert stored["trials"][0]["tokens_per_s_by_depth"] == {"1": 1.0, "3": 1.25}
    # A line each, so that the file can be read and compared.
    lines = path.read_text().split("\n")
    assert sum(line.strip().startswith('["') for line in lines) == len(file.samples)
    # Rows hold all that the tables need.
    read_back = {**stored, "cells": list(cells(opened(path, pocket).samples))}
    assert list(tables(read_back)) == list(tables(stored))


def test_another_measurement_is_not_mixed_in(pocket: Pair, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    bench = ScriptedBench(pocket, Clock(), file=opened(path, pocket))
    bench.file.save(bench, ["macspec"], 0.1)
    with pytest.raises(BadOptionError, match="measured with other plan: continue with the same"):
        opened(path, pocket, Preset())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"kind": "macspec specbench"}',
        '{"kind": "macspec specbench", "format": 2}',
    ],
)
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(BadOptionError, match="cannot be used"):
        read(path)
    assert path.read_text() == text
    path.unlink()
    path.mkdir()
    with pytest.raises(BadOptionError, match="cannot read"):
        read(path)


def prompts(path: Path, each: int, answer: str = "word " * 40) -> Path:
    """A file in Spec-Bench's form."""
    lines = []
    for number, task in enumerate(TASKS):
        for at in range(each):
            entry = {
                "question_id": 100 * number + at,
                "category": "writing" if task == "mt_bench" else task,
                "turns": [f"Say {at}."] * (2 if task == "mt_bench" else 1),
                "reference": answer,
            }
            lines.append(json.dumps(entry))
    path.write_text("\n".join(lines))
    return path


def test_questions_are_taken_from_all_over_a_task(pocket: Pair, tmp_path: Path) -> None:
    tasks = from_file(prompts(tmp_path / "q.jsonl", 9), max_tokens=64)
    questions = chosen(tasks, pocket, Preset(tasks=3, max_tokens=64))
    assert [question.id for question in questions[:3]] == ["0", "3", "6"]
    assert len(questions) == 18
    forced = [question for question in questions if question.forced is not None]
    assert {question.workload for question in forced} == {"summarization", "rag"}


def test_what_cannot_be_chosen_is_told(pocket: Pair, tmp_path: Path) -> None:
    preset = Preset(tasks=4, max_tokens=64)
    with pytest.raises(BadOptionError, match="only 3 questions of mt_bench fit the context of 512"):
        chosen(from_file(prompts(tmp_path / "q.jsonl", 3)), pocket, preset)
    short = from_file(prompts(tmp_path / "q.jsonl", 9, answer="word"))
    assert ANSWER > 1
    with pytest.raises(BadOptionError, match="only 0 questions of summarization fit"):
        chosen(short, pocket, preset)
    with pytest.raises(BadOptionError, match="no question of translation: give Spec-Bench's"):
        chosen([it for it in short if it.workload == "mt_bench"], pocket, preset)


def known_costs() -> dict[str, Any]:
    """What an earlier run may have learned, so that this one need not measure costs."""
    curve = CostCurve()
    for rows in curve.missing(10):
        curve.set_pass(rows, 10, 1 + rows / 10)
    return {"costs": curve.as_dict(), "survival": AcceptanceEstimate().as_dict()}


def test_a_real_run(pocket: Pair, tmp_path: Path) -> None:
    tasks = from_file(prompts(tmp_path / "q.jsonl", 2), max_tokens=3)
    preset = Preset(temperatures=(0.0,), tasks=1, repeats=1, max_tokens=3, depths=(2,))
    file = SpecFile(Path(), {}, learned={"0": known_costs()})
    before = json.dumps(file.learned)
    questions = chosen(tasks, pocket, preset)
    bench = SpecBench(pocket, questions, preset, file)
    assert [question.id for question in bench.questions][:2] == ["0", "0/2"]
    second = bench.questions[1].task.messages
    assert [turn["role"] for turn in second] == ["user", "assistant", "user"]
    assert second[1]["content"] == file.first_replies["0"]
    samples = samples_of(bench)
    bench.close()
    assert json.dumps(file.learned) != before
    known = json.loads(before)["0"]["costs"]["passes"]
    assert len(file.learned["0"]["costs"]["passes"]) >= len(known)
    plain, ours = (
        {it.question: it.written.stats for it in samples if it.arm == arm and it.repeat != TRIAL}
        for arm in (MLX_LM, MACSPEC)
    )
    lengths = {question.id: len(question.ids) for question in bench.questions}
    assert set(plain) == set(ours) == set(lengths)
    for question, stats in plain.items():
        assert stats.passes == stats.tokens == ours[question].tokens
        assert stats.prompt_tokens == ours[question].prompt_tokens == lengths[question]
    assert SpecBench(pocket, questions, preset, file).complete
