"""The comparison on Spec-Bench: whole however often it is stopped, and fair to all arms."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specarms import Clock, Scripted

from macspec.bench.arms import MLX_LM, MLX_LM_DRAFT
from macspec.bench.macspecarm import MacspecArm
from macspec.bench.promptfile import from_file
from macspec.bench.questions import Question
from macspec.bench.run import SEEDS
from macspec.bench.sample import Sample, Written
from macspec.bench.specbench import ANSWER, Preset, SpecFile, chosen, read
from macspec.bench.spectables import (
    MACSPEC,
    TASKS,
    TRIAL,
    results,
    row_of,
    samples_of,
    tables,
    verdict,
)
from macspec.bench.tasks import Task
from macspec.control import AcceptanceEstimate, CostCurve
from macspec.errors import BadOptionError
from macspec.kernels import Kernels
from macspec.models import Pair
from macspec.sampling import Sampling

PRESET = Preset(
    temperatures=[0.0, 0.8], tasks=2, repeats=4, draws=1, max_tokens=12, depths=[1, 3], seed=1
)

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


class ScriptedBench:
    """A run with arms that do what the script says, and its file."""

    def __init__(
        self,
        pair: Pair,
        clock: Clock,
        preset: Preset = PRESET,
        file: SpecFile | None = None,
        minutes: float | None = None,
    ) -> None:
        self.scripted = {
            name: Scripted(name, clock, tokens, seconds, 3)
            for name, (tokens, seconds) in SCRIPT.items()
        }
        self.file = file or opened(Path("nowhere"), pair, preset)
        self.run = self.file.run(arms=[*self.scripted.values()], clock=clock, minutes=minutes)

    @property
    def left(self) -> int:
        return self.file.left(self.run)


def measured(bench: ScriptedBench, most: int | None = None) -> list[Sample]:
    """The samples, after so many more of them at most."""
    for _ in islice(bench.run.measure(), most):
        pass
    return bench.run.samples


def opened(path: Path, pair: Pair, preset: Preset = PRESET) -> SpecFile:
    return SpecFile(path, pair, Kernels(), preset, QUESTIONS)


def test_every_arm_answers_every_question_once_a_repeat(pocket: Pair) -> None:
    bench = ScriptedBench(pocket, Clock())
    assert bench.left == len(QUESTIONS) * len(PRESET.temperatures) * (PRESET.repeats + 1)
    rows = measured(bench)
    assert bench.left == 0
    keys = [(row.arm, row.question, row.temperature, row.repeat) for row in rows]
    assert len(set(keys)) == len(keys)
    cells = len(QUESTIONS) * len(PRESET.temperatures)
    assert len(rows) == cells * (len(PRESET.depths) + PRESET.repeats * 3)
    assert bench.scripted[MLX_LM].prepared == [0.0, 0.8]


def test_arms_follow_each_other_with_one_seed_and_in_turning_order(pocket: Pair) -> None:
    rows = [row for row in measured(ScriptedBench(pocket, Clock())) if row.repeat != TRIAL]
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
    rows = [row for row in measured(bench) if row.repeat != TRIAL]
    assert bench.left == 0
    forced = {it.id for it in QUESTIONS if it.forced is not None}
    for row in rows:
        mine = [it for it in rows if (it.arm, it.question) == (row.arm, row.question)]
        same = [it for it in mine if it.temperature == row.temperature]
        assert len(same) == (6 if row.temperature and row.question not in forced else 2)
        assert len({it.seed for it in same}) == len(same)


def test_the_rival_has_its_best_depth(pocket: Pair) -> None:
    bench = ScriptedBench(pocket, Clock())
    bench.scripted[f"{MLX_LM_DRAFT}@1"].seconds = 0.1
    arms = {row.arm for row in measured(bench) if row.repeat != TRIAL}
    assert arms == {MLX_LM, f"{MLX_LM_DRAFT}@1", MACSPEC}


def test_cells_say_what_the_script_did(pocket: Pair) -> None:
    found = list(results(measured(ScriptedBench(pocket, Clock())), PRESET.repeats))
    assert [(it.temperature, it.task) for it in found] == [
        (temperature, f"{task} (forced)" if task in ("summarization", "rag") else task)
        for temperature in PRESET.temperatures
        for task in TASKS
    ]
    for it in found:
        assert it.depth == 3
        assert it.tokens_per_pass == [1, 2, 3]
        assert it.speeds == pytest.approx([1, 1.25, 2])
        assert it.over_plain is not None
        assert it.over_rival is not None
        assert (it.over_plain.tasks, it.over_plain.value) == (2, pytest.approx(2))
        assert it.over_plain.low == pytest.approx(2)
        assert it.over_rival.value == pytest.approx(1.6)
    slower, ahead = verdict(found)
    assert slower.endswith("in 12 of 12 cells")
    assert ahead.endswith("in 6 of 6 cells above temperature 0")


def test_draws_of_a_repeat_count_together(pocket: Pair) -> None:
    preset = replace(PRESET, repeats=2, draws=3)
    bench = ScriptedBench(pocket, Clock(), preset)
    ours = bench.scripted[MACSPEC]
    write = ours.write

    def slow_at_first(question: Question, sampling: Sampling, ends: bool) -> Written:
        repeat = (sampling.seed or 0) // SEEDS - 1
        ours.seconds = 4.5 if repeat < preset.repeats else 1.0
        return write(question, sampling, ends)

    ours.write = slow_at_first  # type: ignore[method-assign]
    found = {(it.task, it.temperature): it.over_plain for it in results(measured(bench), 2)}
    drawn, once = found["qa", 0.8], found["qa", 0.0]
    assert drawn is not None
    assert once is not None
    assert drawn.value == pytest.approx(3 * 3 / (4.5 + 1 + 1))
    assert once.value == pytest.approx(3 / 4.5)
    assert (drawn.pairs, once.pairs) == (4, 4)


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
    slower, ahead = verdict(list(results(measured(bench), PRESET.repeats)))
    assert words in slower
    assert "in 0 of 6 cells above temperature 0; not in mt_bench at 0.8, " in ahead


@settings(deadline=None, max_examples=5)
@given(stops=st.lists(st.integers(0, 80), max_size=12))
def test_stops_change_nothing(pocket: Pair, stops: list[int]) -> None:
    whole = measured(ScriptedBench(pocket, Clock()))
    file = opened(Path("nowhere"), pocket)
    for stop in stops:
        bench = ScriptedBench(pocket, Clock(), file=file)
        measured(bench, stop)
        file.samples = file.whole(bench.run)
    again = measured(ScriptedBench(pocket, Clock(), file=file))
    assert sorted(map(row_of, again)) == sorted(map(row_of, whole))


def test_a_run_ends_when_its_time_is_over(pocket: Pair) -> None:
    clock = Clock()
    bench = ScriptedBench(pocket, clock, minutes=100 / 60)
    rows = measured(bench)
    longest = 12 * (1.0 + 2.0 + 1.6 + 1.5)
    assert 100.0 <= clock.now < 100.0 + longest
    assert 0 < len(rows) < len(measured(ScriptedBench(pocket, Clock())))
    assert bench.left


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
        measured(bench)
    assert len(bench.file.whole(bench.run)) == 5 * len(PRESET.depths)


def test_a_lap_in_which_the_machine_slept_is_measured_again(pocket: Pair) -> None:
    bench = ScriptedBench(pocket, Clock())

    class Watch:
        calls = 0

        def jumped(self) -> bool:
            self.calls += 1
            return self.calls == 2

    bench.run._watch = Watch()  # type: ignore[assignment]
    rows = measured(bench)
    asked = bench.scripted[rows[0].arm].asked
    assert asked[0] == asked[1]
    assert len(rows) == len({(row.arm, row.question, row.temperature, row.repeat) for row in rows})


def test_a_file_is_gone_on_with(pocket: Pair, tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    for stop in (7, 61, 1000):
        file = opened(path, pocket)
        bench = ScriptedBench(pocket, Clock(), file=file)
        measured(bench, stop)
        file.learned["0"] = {"costs": stop}
        file.save(bench.run)
        stored = read(path)
        assert stored["complete"] == (stop == 1000)
        assert ("learned" in stored) == (stop != 1000)
        assert len(stored["rows"]) == len(file.whole(bench.run))
    assert all(run["seconds"] >= 0 for run in stored["runs"])
    assert len(stored["runs"]) == 3
    # A line each, so that the file can be read and compared.
    lines = path.read_text().split("\n")
    assert sum(line.strip().startswith('["') for line in lines) == len(bench.run.samples)
    # Rows hold all that the tables need.
    assert list(map(row_of, samples_of(stored))) == list(map(row_of, bench.run.samples))
    found = list(results(samples_of(stored), PRESET.repeats))
    over = [it.over_plain.value for it in found if it.over_plain is not None]
    assert over == pytest.approx([2] * 12)
    assert [len(table.rows) for table in tables(found)] == [6, 6]
    assert [it["over_plain"]["value"] for it in stored["cells"]] == over


def test_another_measurement_is_not_mixed_in(pocket: Pair, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    bench = ScriptedBench(pocket, Clock(), file=opened(path, pocket))
    bench.file.save(bench.run)
    with pytest.raises(BadOptionError, match="measured with other plan: continue with the same"):
        opened(path, pocket, replace(PRESET, seed=2))


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


def test_a_plan_that_cannot_be_is_refused(pocket: Pair, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    bench = ScriptedBench(pocket, Clock(), file=opened(path, pocket))
    measured(bench)
    bench.file.save(bench.run)
    stored = read(path)
    stored["plan"]["repeats"] = 0
    path.write_text(json.dumps(stored))
    with pytest.raises(BadOptionError, match="cannot be used"):
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
    questions = chosen(tasks, pocket, replace(PRESET, tasks=3, max_tokens=64))
    assert [question.id for question in questions[:3]] == ["0", "3", "6"]
    assert len(questions) == 18
    forced = [question for question in questions if question.forced is not None]
    assert {question.workload for question in forced} == {"summarization", "rag"}


def test_what_cannot_be_chosen_is_told(pocket: Pair, tmp_path: Path) -> None:
    preset = replace(PRESET, tasks=4, max_tokens=64)
    with pytest.raises(BadOptionError, match="only 3 questions of mt_bench fit the context of 512"):
        chosen(from_file(prompts(tmp_path / "q.jsonl", 3)), pocket, preset)
    short = from_file(prompts(tmp_path / "q.jsonl", 9, answer="word"))
    assert ANSWER > 1
    with pytest.raises(BadOptionError, match="only 0 questions of summarization fit"):
        chosen(short, pocket, preset)
    with pytest.raises(BadOptionError, match="no question of translation: give Spec-Bench's"):
        chosen([it for it in short if it.workload == "mt_bench"], pocket, preset)


def test_macspec_may_draft_with_another_model_than_mlx_lm(small: Pair, tmp_path: Path) -> None:
    ours = replace(small, draft=None)
    file = SpecFile(tmp_path / "a.json", small, Kernels(), PRESET, QUESTIONS, ours=ours)
    run = file.run()
    arm = run.arms[MACSPEC]
    assert isinstance(arm, MacspecArm)
    assert (arm.pair, run.pair) == (ours, small)


def known_costs() -> dict[str, Any]:
    """What an earlier run may have learned, so that this one need not measure costs."""
    curve = CostCurve()
    while missing := curve.missing(10, ["draft"]):
        for name, depth in missing:
            curve.learn(name, depth, 10, 1 + depth / 10)
    return {"costs": curve.as_dict(), "survival": AcceptanceEstimate().as_dict()}


def test_a_real_run(small: Pair, tmp_path: Path) -> None:
    tasks = from_file(prompts(tmp_path / "q.jsonl", 2), max_tokens=3)
    preset = replace(PRESET, temperatures=[0.0], tasks=1, repeats=1, max_tokens=3, depths=[2])
    questions = chosen(tasks, small, preset)
    file = SpecFile(tmp_path / "a.json", small, Kernels(), preset, questions)
    file.learned["0"] = known_costs()
    before = json.dumps(file.learned)
    run = file.run()
    assert [question.id for question in run.questions][:2] == ["0", "0/2"]
    second = run.questions[1].task.messages
    assert [turn["role"] for turn in second] == ["user", "assistant", "user"]
    assert second[1]["content"] == file.first_replies["0"]
    samples = list(run.measure())
    assert json.dumps(file.learned) != before
    known = json.loads(before)["0"]["costs"]["rounds"]
    assert len(file.learned["0"]["costs"]["rounds"]) >= len(known)
    plain, ours = (
        {it.question: it.written.stats for it in samples if it.arm == arm and it.repeat != TRIAL}
        for arm in (MLX_LM, MACSPEC)
    )
    lengths = {question.id: len(question.ids) for question in run.questions}
    assert set(plain) == set(ours) == set(lengths)
    for question, stats in plain.items():
        assert stats.passes == stats.tokens == ours[question].tokens
        assert stats.prompt_tokens == ours[question].prompt_tokens == lengths[question]
    assert file.left(run) == 0
