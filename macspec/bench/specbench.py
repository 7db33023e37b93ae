"""Spec-Bench's six tasks on one pair: macspec beside mlx-lm, in runs that can be resumed.

First mlx-lm's own speculation tries its depths on each task at each temperature, on the very
questions that are asked later, and the fastest one enters the comparison. There mlx-lm's plain
loop, its speculation and macspec answer each question in turn, over and over. The file holds a row
for each reply; a later run with the same settings continues it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..cli.table import Table
from ..errors import BadOptionError
from ..events import ReplyStats
from ..kernels import Kernels
from ..models import Pair
from ..power import conditions
from ..stats import ReplyCounter
from .arms import MLX_LM, MLX_LM_DRAFT
from .cells import FORCED, Ratio, paired_ratio, speed_ratio
from .document import load_average, machine, models, reading, write
from .macspecarm import DecodeConfig, MacspecArm
from .mlxlm import DEPTHS, MlxLmArm
from .promptfile import MT_BENCH
from .questions import Arm, Question, ready, with_later_turns
from .report import Block, Record, model_words, ratio_columns, setup_words
from .run import SEEDS, Lap, Progress, Protocol, Run, Step
from .sample import Sample, Written
from .tasks import Task

KIND = "macspec specbench"

FORMAT = 1

TASKS = (MT_BENCH, "translation", "summarization", "qa", "math_reasoning", "rag")

ANSWER = 24
"""Tokens that a recorded answer must have, or there would be hardly a decode to measure."""

MACSPEC = "auto"

TRIAL = -1
"""The repeat of replies that only look for the fastest depth of mlx-lm's speculation."""

LEAST = 0.97
"""How slow the lower end of the interval over plain decoding may be."""

COLUMNS = [
    "arm", "question", "temperature", "repeat", "seed", "prompt_tokens", "tokens", "passes",
    "drafted", "accepted", "ttft_s", "decode_tokens", "decode_s",
]  # fmt: skip
"""Of the rows in the file; ``decode_tokens`` are those after the first pass's."""

ROWS = "@rows@"
"""Stands for the rows until they are written, a line each."""


@dataclass(frozen=True, slots=True)
class Preset:
    """What is measured."""

    temperatures: tuple[float, ...] = (0.0, 0.8)
    tasks: int = 8
    """Questions of each task; of those with two turns both are asked."""
    repeats: int = 3
    draws: int = 4
    """Times as many repeats where replies are drawn, since each of those is another text."""
    max_tokens: int = 256
    """Longest reply."""
    depths: tuple[int, ...] = DEPTHS
    """Among which mlx-lm's fastest is looked for."""
    seed: int = 1


def chosen(tasks: Sequence[Task], pair: Pair, preset: Preset) -> list[Question]:
    """The questions of each task that fit the context, taken evenly from all over it.

    Raises:
        BadOptionError: a task is missing, or too few of its questions fit.
    """
    questions: list[Question] = []
    for name in TASKS:
        own = [task for task in tasks if task.workload == name]
        if not own:
            raise BadOptionError(
                f"there is no question of {name}: give Spec-Bench's question.jsonl"
            )
        fitting, _ = ready(own, pair, preset.max_tokens)
        least = min(ANSWER, preset.max_tokens)
        whole = [it for it in fitting if it.forced is None or len(it.forced) >= least]
        if len(whole) < preset.tasks:
            raise BadOptionError(
                f"only {len(whole)} questions of {name} fit the context of {pair.context} "
                f"positions and have a recorded answer of {least} tokens, if they need one: give a "
                "smaller --tasks or --max-tokens"
            )
        questions += [whole[len(whole) * at // preset.tasks] for at in range(preset.tasks)]
    return questions


@dataclass(slots=True)
class SpecFile:
    """The file of a measurement: what is fixed for all runs, and what was measured so far."""

    path: Path
    fixed: dict[str, Any]
    samples: list[Sample] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    """When, for how long and under what conditions it was measured."""
    learned: dict[str, Any] = field(default_factory=dict)
    """What macspec's controller knew when it was last stopped, by temperature."""
    first_replies: dict[str, str] = field(default_factory=dict)
    """Replies that second turns follow, by question."""

    @classmethod
    def open(
        cls, path: Path, pair: Pair, kernels: Kernels, preset: Preset, questions: Sequence[Question]
    ) -> SpecFile:
        """The file with what it holds so far, or a new one; a run begins now.

        Raises:
            BadOptionError: it cannot be read, or something else was measured in it.
        """
        fixed = {
            "machine": machine(),
            "models": models(pair, kernels, None),
            "plan": asdict(preset),
            "questions": [
                {
                    "id": it.id,
                    "task": it.workload,
                    "digest": it.task.digest,
                    "prompt_tokens": len(it.ids),
                    "max_tokens": it.max_tokens,
                    "forced": it.forced is not None,
                }
                for it in questions
            ],
        }
        file = cls(path, json.loads(json.dumps(fixed)))
        if path.exists():
            stored = read(path)
            for name, value in file.fixed.items():
                if stored.get(name) != value:
                    raise BadOptionError(
                        f"{path} was measured with other {name}: continue with the same, or name a "
                        "new file with --out"
                    )
            file.samples = [_sample(row, questions) for row in stored["rows"]]
            file.runs = stored["runs"]
            file.learned = stored.get("learned", {})
            file.first_replies = stored.get("first_replies", {})
        now = datetime.now(UTC).isoformat(timespec="seconds")
        state = {"load_before": load_average(), "conditions": asdict(conditions())}
        file.runs.append({"began": now, **state})
        return file

    def save(self, bench: SpecBench, command: Sequence[str], seconds: float) -> None:
        """Write everything, whole or not at all.

        Raises:
            BadOptionError: it cannot be written.
        """
        self.runs[-1]["seconds"] = round(seconds, 1)
        document: dict[str, Any] = {
            "kind": KIND,
            "format": FORMAT,
            "complete": bench.complete,
            "command": list(command),
            **self.fixed,
            "runs": self.runs,
            "trials": [
                {"temperature": temperature, "task": task, "tokens_per_s_by_depth": speeds}
                for (temperature, task), speeds in speeds_by_depth(self.samples).items()
            ],
            "cells": list(cells(self.samples)),
            "columns": COLUMNS,
            "rows": ROWS,
        }
        if not bench.complete:
            document["learned"] = self.learned
            document["first_replies"] = self.first_replies
        lines = ",\n".join(f"  {json.dumps(_row(sample))}" for sample in self.samples)
        text = json.dumps(document, indent=1).replace(f'"{ROWS}"', f"[\n{lines}\n ]") + "\n"
        write(self.path, text)


def read(path: Path) -> dict[str, Any]:
    """A document that ``SpecFile`` wrote.

    Raises:
        BadOptionError: it cannot be read, or is something else.
    """
    with reading(path):
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(stored, dict) or stored.get("kind") != KIND:
            raise ValueError("macspec bench specbench did not write it")
        if stored["format"] != FORMAT or stored["columns"] != COLUMNS:
            raise ValueError("another version of macspec wrote it")
        list(tables(stored))
        if any(len(row) != len(COLUMNS) for row in stored["rows"]):
            raise ValueError("a row has another length")
    return stored


class SpecBench:
    """Measures what is still missing in a file.

    Args:
        file: what was measured already; new replies and what the controller learned are added.
        progress: called with each step before it is taken.
        arms: None: the usual ones.
    """

    def __init__(
        self,
        pair: Pair,
        questions: Sequence[Question],
        preset: Preset,
        file: SpecFile,
        *,
        kernels: Kernels | str = "auto",
        clock: Callable[[], float] = time.perf_counter,
        progress: Progress = lambda step: None,
        arms: Sequence[Arm] | None = None,
    ) -> None:
        self.preset, self.file = preset, file
        self._clock, self._progress = clock, progress
        if any(it.task.then and it.id not in file.first_replies for it in questions):
            progress(Step(0, 0, None, "writing the replies that second turns follow"))
        writer = MacspecArm("", pair, DecodeConfig("off", kernels=kernels))
        self.questions = with_later_turns(questions, pair, writer, file.first_replies)
        writer.close()
        config = DecodeConfig(kernels=kernels)
        arms = arms or [
            MlxLmArm(MLX_LM, pair, clock=clock),
            *(MlxLmArm(_at(depth), pair, depth=depth, clock=clock) for depth in preset.depths),
            MacspecArm(MACSPEC, pair, config, learned=file.learned, clock=clock),
        ]
        protocol = Protocol(preset.temperatures, preset.repeats, preset.seed)
        self._run = Run(pair, arms, self.questions, protocol, clock=clock)

    @property
    def left(self) -> int:
        """Laps still to be done."""
        return len(self._missing(self._trials())) + len(self._missing(self._comparisons()))

    @property
    def complete(self) -> bool:
        return self.left == 0

    def run(self, until: float | None = None) -> Iterator[None]:
        """Continue measuring.

        Args:
            until: a moment of the clock after which no further question is begun.

        Yields:
            After each question, when all arms have answered it.
        """
        begun, done, total = self._clock(), 0, self.left
        for laps in (self._trials, self._comparisons):
            for lap in self._missing(laps()):
                if until is not None and self._clock() >= until:
                    return
                left = (self._clock() - begun) / done * (total - done) if done else None
                what = f"{self.questions[lap.index].workload} at {lap.temperature:g}"
                self._progress(Step(done, total, left, what))
                samples = list(self._run.lap(lap))
                while any(sample.slept for sample in samples):
                    samples = list(self._run.lap(lap))
                # As the file has them, so that a resumed measurement finds the same.
                self.file.samples += [_sample(_row(it), self.questions) for it in samples]
                done += 1
                yield

    def close(self) -> None:
        """Keep what macspec learned, and let go of the arms."""
        self._run.close()

    def _trials(self) -> Iterator[Lap]:
        arms = tuple(map(_at, self.preset.depths))
        for temperature in self.preset.temperatures:
            for index in range(len(self.questions)):
                yield self._lap(TRIAL, temperature, index, arms)

    def _comparisons(self) -> Iterator[Lap]:
        """Known once all trials are done."""
        found = speeds_by_depth(self.file.samples)
        for repeat in range(self.preset.repeats * self.preset.draws):
            for temperature in self.preset.temperatures:
                for index, question in enumerate(self.questions):
                    drawn = temperature > 0 and question.forced is None
                    if repeat >= self.preset.repeats and not drawn:
                        continue
                    speeds = found.get((temperature, question.workload), {0: 0.0})
                    best = max(speeds, key=speeds.__getitem__)
                    arms = (MLX_LM, _at(best), MACSPEC)
                    turn = (repeat + index) % len(arms)
                    yield self._lap(repeat, temperature, index, arms[turn:] + arms[:turn])

    def _lap(self, repeat: int, temperature: float, index: int, arms: tuple[str, ...]) -> Lap:
        seed = self.preset.seed + SEEDS * (repeat + 1) + index
        return Lap(repeat, temperature, index, seed, arms)

    def _missing(self, laps: Iterator[Lap]) -> list[Lap]:
        there = {(it.repeat, it.temperature, it.question) for it in self.file.samples}
        ids = [question.id for question in self.questions]
        return [it for it in laps if (it.repeat, it.temperature, ids[it.index]) not in there]


def speeds_by_depth(samples: Sequence[Sample]) -> dict[tuple[float, str], dict[int, float]]:
    """For each temperature and task, the trials' decode speed by depth."""
    found: dict[tuple[float, str], dict[int, list[Sample]]] = {}
    for sample in samples:
        if sample.repeat == TRIAL:
            by_depth = found.setdefault((sample.temperature, sample.workload), {})
            by_depth.setdefault(_depth(sample), []).append(sample)
    return {
        key: {depth: _together(own)["tokens_per_s"] for depth, own in sorted(by_depth.items())}
        for key, by_depth in found.items()
    }


def cells(samples: Sequence[Sample]) -> Iterator[dict[str, Any]]:
    """What was measured so far by temperature and task, ready for JSON."""
    counted = [sample for sample in samples if sample.repeat != TRIAL]
    for temperature in sorted({sample.temperature for sample in counted}):
        for task in TASKS:
            members = [it for it in counted if (it.temperature, it.workload) == (temperature, task)]
            plain, ours = ([it for it in members if it.arm == arm] for arm in (MLX_LM, MACSPEC))
            rival = [it for it in members if it.arm.startswith(MLX_LM_DRAFT)]
            if not (plain and rival and ours):
                continue
            by_place, rivals = ({it.cell: it for it in arm} for arm in (plain, rival))
            passes = paired_ratio(ours, rivals, lambda it: it.written.stats.tokens_per_pass)
            yield {
                "task": task,
                "temperature": temperature,
                "forced": ours[0].forced,
                "questions": len({it.question for it in members}),
                "depth": _depth(rival[0]),
                "plain": _together(plain),
                "rival": _together(rival),
                "ours": _together(ours),
                "rival_over_plain": _as_dict(speed_ratio(rival, by_place)),
                "over_plain": _as_dict(speed_ratio(ours, by_place)),
                "over_rival": _as_dict(speed_ratio(ours, rivals)),
                "passes_over_rival": _as_dict(passes),
            }


def blocks(document: Record) -> Iterator[Block]:
    """What was measured, the tables, and how to read them."""
    yield list(_head(document))
    yield from tables(document)
    if document["cells"]:
        yield [*verdict(document["cells"]), *_notes(document)]


def tables(document: Record) -> Iterator[Table]:
    """A table for each temperature."""
    columns = (
        "task", "mlx-lm tok/s", "mlx-lm speculative tok/s", "tok/pass", "macspec tok/s", "tok/pass",
        "vs mlx-lm", "95%", "vs mlx-lm speculative", "95%",
    )  # fmt: skip
    for temperature in sorted({cell["temperature"] for cell in document["cells"]}):
        rows = [
            (
                f"{it['task']}{FORCED if it['forced'] else ''}",
                f"{it['plain']['tokens_per_s']:.1f}",
                f"{it['rival']['tokens_per_s']:.1f} @{it['depth']}",
                f"{it['rival']['tokens_per_pass']:.2f}",
                f"{it['ours']['tokens_per_s']:.1f}",
                f"{it['ours']['tokens_per_pass']:.2f}",
                *ratio_columns(_ratio(it["over_plain"])),
                *ratio_columns(_ratio(it["over_rival"])),
            )
            for it in document["cells"]
            if it["temperature"] == temperature
        ]
        yield Table(f"temperature {temperature:g}", columns, rows)


def verdict(cells: Sequence[Record]) -> Iterator[str]:
    """What holds and what does not, cell by cell."""
    slower = [it for it in cells if ((it["over_plain"] or {}).get("low") or 0.0) < LEAST]
    above = [it for it in cells if it["temperature"] > 0]
    behind = [it for it in above if not _leads(it)]
    yield (
        f"the interval over plain begins at {LEAST:g} or above in {len(cells) - len(slower)} of "
        f"{len(cells)} cells{_named(slower)}"
    )
    yield (
        f"ahead of mlx-lm's speculation in tokens per pass and speed in {len(above) - len(behind)} "
        f"of {len(above)} cells above temperature 0{_named(behind)}"
    )


def _head(document: Record) -> Iterator[str]:
    plan, pair = document["plan"], document["models"]
    yield (
        f"{setup_words(document['machine'])}; target {model_words(pair['target'])}, "
        f"draft {model_words(pair['draft'])}"
    )
    minutes = sum(run.get("seconds", 0) for run in document["runs"]) / 60
    yield (
        f"{plan['tasks']} questions per task, both turns of {MT_BENCH}; replies of at most "
        f"{plan['max_tokens']} tokens; {plan['repeats']} repeats, "
        f"{plan['repeats'] * plan['draws']} where replies are drawn; measured in {minutes:.0f} min"
    )
    if not document["complete"]:
        yield "NOT COMPLETE: run the same command again to continue"


def _notes(document: Record) -> Iterator[str]:
    depths = ", ".join(map(str, document["plan"]["depths"]))
    yield (
        "tok/s is decode speed; it and tok/pass are over all replies of a task; @ is mlx-lm's "
        f"num_draft_tokens, for each cell the fastest of {depths} on these very questions"
    )
    yield "vs: ratio of decode speeds, paired by question, with its 95% bootstrap interval"
    if any(question["forced"] for question in document["questions"]):
        yield (
            "forced: decoded along the recorded answer, which this target cannot write: valid for "
            "look-ups and costs, not for a draft model's guesses"
        )


def _leads(cell: Record) -> bool:
    """Whether macspec is ahead of mlx-lm's speculation, in tokens per pass and in speed."""
    over = cell["over_rival"]
    faster = over is not None and over["value"] > 1
    return faster and cell["ours"]["tokens_per_pass"] > cell["rival"]["tokens_per_pass"]


def _named(cells: Sequence[Record]) -> str:
    names = ", ".join(f"{it['task']} at {it['temperature']:g}" for it in cells)
    return f"; not in {names}" if names else ""


def _at(depth: int) -> str:
    return f"{MLX_LM_DRAFT}@{depth}"


def _depth(sample: Sample) -> int:
    return int(sample.arm.removeprefix(f"{MLX_LM_DRAFT}@"))


def _together(samples: Sequence[Sample]) -> dict[str, Any]:
    """All replies of one arm in a cell."""
    stats = [sample.written.stats for sample in samples]
    seconds = sum(it.seconds.decode for it in stats)
    tokens = sum(map(_decode_tokens, stats))
    return {
        "tokens_per_pass": sum(it.tokens for it in stats) / sum(it.passes for it in stats),
        "tokens_per_s": tokens / seconds if seconds else 0.0,
        "replies": len(samples),
    }


def _ratio(stored: Record | None) -> Ratio | None:
    return None if stored is None else Ratio(**stored)


def _as_dict(found: Ratio | None) -> dict[str, Any] | None:
    return None if found is None else asdict(found)


def _decode_tokens(stats: ReplyStats) -> int:
    """Those after the first pass's."""
    return round((stats.decode_tokens_per_s or 0.0) * stats.seconds.decode)


def _row(sample: Sample) -> list[Any]:
    stats = sample.written.stats
    return [
        sample.arm, sample.question, sample.temperature, sample.repeat, sample.seed,
        stats.prompt_tokens, stats.tokens, stats.passes, stats.drafted, stats.accepted,
        round(stats.ttft_s or 0.0, 6), _decode_tokens(stats), round(stats.seconds.decode, 6),
    ]  # fmt: skip


def _sample(row: Sequence[Any], questions: Sequence[Question]) -> Sample:
    """The reply of a row, as far as tables need it."""
    it = dict(zip(COLUMNS, row, strict=True))
    first, _, _ = it["question"].partition("/")
    question = next(question for question in questions if question.id == first)
    counter = ReplyCounter(
        prompt_tokens=it["prompt_tokens"],
        tokens=it["tokens"],
        passes=it["passes"],
        first_tokens=it["tokens"] - it["decode_tokens"],
        prefill=it["ttft_s"],
        decode=it["decode_s"],
        drafted=it["drafted"],
        accepted=it["accepted"],
    )
    return Sample(
        arm=it["arm"],
        question=it["question"],
        workload=question.workload,
        forced=question.forced is not None,
        temperature=it["temperature"],
        repeat=it["repeat"],
        seed=it["seed"],
        at=0.0,
        written=Written((), "", "", counter.stats()),
    )
