"""Spec-Bench's six tasks on one pair: a preset of ``Run`` beside mlx-lm, which can be resumed.

First mlx-lm's speculation tries its depths on the very questions that are asked later. The fastest
depth of each task and temperature is compared with mlx-lm's plain loop and macspec.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from ..cli.table import Table
from ..errors import BadOptionError
from ..kernels import Kernels
from ..models import Pair
from ..power import conditions
from ..stats import ReplyCounter
from .arms import MLX_LM, MLX_LM_DRAFT
from .cells import FORCED, Ratio, speed_ratio
from .document import load_average, machine, models, reading, write
from .macspecarm import DecodeConfig, MacspecArm
from .mlxlm import MlxLmArm
from .promptfile import MT_BENCH
from .questions import Arm, Question, ready, with_later_turns
from .report import Block, Record, model_words, ratio_columns, setup_words
from .run import LATER, SEEDS, Lap, Progress, Protocol, Run
from .sample import Sample, Written, pooled_speed, tokens_per_pass
from .tasks import Task

KIND = "macspec specbench"

FORMAT = 1

TASKS = (MT_BENCH, "translation", "summarization", "qa", "math_reasoning", "rag")

ANSWER = 24
"""Tokens that a recorded answer must have, or there would be hardly a decode to measure."""

MACSPEC = "auto"

ARMS = (MLX_LM, MLX_LM_DRAFT, MACSPEC)
"""Those that are compared; in samples the second one's depth follows its name."""

TRIAL = -1
"""The repeat of replies that only look for the fastest depth of mlx-lm's speculation."""

LEAST = 0.97
"""How slow the lower end of the interval over plain decoding may be."""

SAVED = 20.0
"""Seconds between two saves while it is measured."""

PLACE = ("arm", "question", "temperature", "repeat", "seed")

COUNTED = ("prompt_tokens", "tokens", "passes", "drafted", "accepted")

COLUMNS = [*PLACE, *COUNTED, "ttft_s", "decode_tokens", "decode_s"]
"""Of the rows in the file; ``decode_tokens`` are those after the first pass's."""

ROWS = "@rows@"
"""Stands for the rows until they are written, a line each."""


@dataclass(frozen=True, slots=True)
class Preset:
    """What is measured."""

    temperatures: Sequence[float]
    tasks: int
    """Questions of each task; of those with two turns both are asked."""
    repeats: int
    draws: int
    """Times as many repeats where replies are drawn, since each of those is another text."""
    max_tokens: int
    """Longest reply."""
    depths: Sequence[int]
    """Among which mlx-lm's fastest is looked for."""
    seed: int


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


class SpecFile:
    """The file of a measurement: what is fixed for all runs, and what was measured so far.

    A run begins when it is opened; it is made if it is not there.

    Args:
        pair: has the draft model of mlx-lm's speculation.
        ours: what macspec decodes with; None: ``pair``.

    Raises:
        BadOptionError: it cannot be read, or something else was measured in it.
    """

    def __init__(
        self,
        path: Path,
        pair: Pair,
        kernels: Kernels,
        preset: Preset,
        questions: Sequence[Question],
        command: Sequence[str] = (),
        ours: Pair | None = None,
    ) -> None:
        self.path, self.preset = path, preset
        self._pair, self._kernels, self._questions = pair, kernels, questions
        self._ours = ours or pair
        fixed = {
            "machine": machine(),
            "models": models(replace(pair, head=self._ours.head), kernels, None),
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
        self._fixed = json.loads(json.dumps(fixed))
        self._command = list(command)
        stored = read(path) if path.exists() else {**self._fixed, "rows": [], "runs": []}
        for name, value in self._fixed.items():
            if stored.get(name) != value:
                raise BadOptionError(
                    f"{path} was measured with other {name}: continue with the same, or name a "
                    "new file with --out"
                )
        self.samples = samples_of(stored)
        """Of earlier runs."""
        self.learned: dict[str, Any] = stored.get("learned", {})
        """What macspec's controller knew when it was last stopped, by temperature."""
        self.first_replies: dict[str, str] = stored.get("first_replies", {})
        """Replies that second turns follow, by question."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        state = {"load_before": load_average(), "conditions": asdict(conditions())}
        self._runs = [*stored["runs"], {"began": now, **state}]
        self._began = self._saved = time.perf_counter()

    def run(
        self,
        *,
        arms: Sequence[Arm] | None = None,
        minutes: float | None = None,
        progress: Progress = lambda step: None,
        **settings: Any,
    ) -> Run:
        """A run of what is missing; ``arms``: None takes the usual ones; settings are ``Run``'s."""
        pair, preset = self._pair, self.preset
        progress(LATER)
        writer = MacspecArm("", pair, DecodeConfig("off", kernels=self._kernels))
        config = DecodeConfig(kernels=self._kernels)
        # Trials have the seeds below those of the first repeat.
        protocol = Protocol(
            tuple(preset.temperatures), preset.repeats, preset.seed + SEEDS, minutes=minutes
        )
        return Run(
            pair,
            arms
            or [
                MlxLmArm(MLX_LM, pair),
                *(MlxLmArm(_at(depth), pair, depth=depth) for depth in preset.depths),
                MacspecArm(MACSPEC, self._ours, config, learned=self.learned),
            ],
            with_later_turns(self._questions, pair, writer, self.first_replies),
            protocol,
            laps=self._laps,
            samples=self.samples,
            progress=progress,
            **settings,
        )

    def left(self, run: Run) -> int:
        """Questions that are still to be answered by all their arms."""
        return sum(1 for _ in self._wanted(run)) - len({it.cell for it in self.whole(run)})

    def save(self, run: Run) -> None:
        """Write everything but half laps, whole or not at all.

        Raises:
            BadOptionError: it cannot be written.
        """
        self._saved = time.perf_counter()
        self._runs[-1]["seconds"] = round(self._saved - self._began, 1)
        samples, complete = self.whole(run), self.left(run) == 0
        state = {"learned": self.learned, "first_replies": self.first_replies}
        document: dict[str, Any] = {
            "kind": KIND,
            "format": FORMAT,
            "complete": complete,
            "command": self._command,
            **self._fixed,
            "runs": self._runs,
            "cells": [it._asdict() for it in results(samples)],
            "columns": COLUMNS,
            "rows": ROWS,
            **({} if complete else state),
        }
        lines = ",\n".join(f"  {json.dumps(_row(sample))}" for sample in samples)
        whole = json.dumps(document, indent=1, default=asdict)  # ratios
        text = whole.replace(f'"{ROWS}"', f"[\n{lines}\n ]") + "\n"
        write(self.path, text)

    def save_at_times(self, run: Run) -> None:
        """The same if the newest save is a while ago."""
        if time.perf_counter() - self._saved > SAVED:
            self.save(run)

    def _laps(self, run: Run) -> Iterator[Lap]:
        """Those that are wanted; one in which the machine slept is measured again."""
        for lap in self._wanted(run):
            yield lap
            while any(it.slept for it in run.samples[-len(lap.arms) :]):
                del run.samples[-len(lap.arms) :]
                yield lap

    def _wanted(self, run: Run) -> Iterator[Lap]:
        """The trials, then the comparisons, whose arms are known once all trials are done."""
        preset, depths = self.preset, [_at(depth) for depth in self.preset.depths]
        for temperature, index in product(preset.temperatures, range(len(run.questions))):
            yield run.lap(TRIAL, temperature, index, depths)
        # As the file has them, so that a resumed run finds the same.
        rows = {**self._fixed, "rows": [_row(sample) for sample in run.samples]}
        best = best_depths(samples_of(rows))
        for repeat, temperature, (index, question) in product(
            range(preset.repeats * preset.draws), preset.temperatures, enumerate(run.questions)
        ):
            if repeat < preset.repeats or (temperature > 0 and question.forced is None):
                depth = best.get((temperature, question.workload), 0)
                yield run.lap(repeat, temperature, index, (MLX_LM, _at(depth), MACSPEC))

    def whole(self, run: Run) -> list[Sample]:
        """The samples without those of a lap that was interrupted."""
        there = Counter(sample.cell for sample in run.samples)
        arms = {True: len(self.preset.depths), False: len(ARMS)}
        return [it for it in run.samples if there[it.cell] == arms[it.repeat == TRIAL]]


def read(path: Path) -> dict[str, Any]:
    """A document that ``SpecFile`` wrote.

    Raises:
        BadOptionError: it cannot be read, or is something else.
    """
    with reading(path) as stored:
        if not isinstance(stored, dict) or stored.get("kind") != KIND:
            raise ValueError("macspec bench specbench did not write it")
        if stored["format"] != FORMAT or stored["columns"] != COLUMNS:
            raise ValueError("another version of macspec wrote it")
        list(blocks(stored))
    return dict(stored)


def best_depths(samples: Sequence[Sample]) -> dict[tuple[float, str], int]:
    """By temperature and task, at which depth mlx-lm's speculation was fastest in the trials."""
    trials = defaultdict[tuple[float, str, int], list[Written]](list)
    for it in samples:
        if it.repeat == TRIAL:
            depth = int(it.arm.removeprefix(_at("")))
            trials[it.temperature, it.workload, depth].append(it.written)
    # The shallowest of equals comes last.
    ranked = sorted(trials, key=lambda place: (pooled_speed(trials[place]), -place[2]))
    return {(temperature, task): depth for temperature, task, depth in ranked}


class Found(NamedTuple):
    """What was measured on one task at one temperature; lists have a value for each arm."""

    task: str
    temperature: float
    depth: int
    """Of mlx-lm's speculation."""
    speeds: list[float]
    """Decode tokens a second, over all replies together."""
    tokens_per_pass: list[float]
    over_plain: Ratio | None
    over_rival: Ratio | None

    @property
    def leads(self) -> bool:
        """Whether macspec is ahead of mlx-lm's speculation, in tokens per pass and in speed."""
        _, rival, ours = self.tokens_per_pass
        return self.over_rival is not None and self.over_rival.value > 1 and ours > rival

    @property
    def held(self) -> bool:
        """Whether it is surely not much slower than plain decoding."""
        return self.over_plain is not None and (self.over_plain.low or 0.0) >= LEAST


def results(samples: Sequence[Sample]) -> Iterator[Found]:
    """What was measured so far, by temperature and task."""
    depths = best_depths(samples)
    for temperature, task in product(sorted({it.temperature for it in samples}), TASKS):
        members = [
            it
            for it in samples
            if (it.temperature, it.workload) == (temperature, task) and it.repeat != TRIAL
        ]
        if not members:
            continue
        arms = [[it for it in members if it.arm.partition("@")[0] == name] for name in ARMS]
        replies = [[it.written for it in arm] for arm in arms]
        plain, rival, _ = ({it.cell: it for it in arm} for arm in arms)
        yield Found(
            task + (FORCED if members[0].forced else ""),
            temperature,
            depths[temperature, task],
            [pooled_speed(it) for it in replies],
            [tokens_per_pass(it) or 0.0 for it in replies],
            speed_ratio(arms[-1], plain),
            speed_ratio(arms[-1], rival),
        )


def blocks(document: Record) -> Iterator[Block]:
    """What was measured, the tables, and how to read them."""
    found = list(results(samples_of(document)))
    yield list(_head(document))
    yield from tables(found)
    if found:
        yield [*verdict(found), *_notes(document)]


def tables(found: Sequence[Found]) -> Iterator[Table]:
    """A table for each temperature."""
    columns = (
        "task", "mlx-lm tok/s", "mlx-lm speculative tok/s", "tok/pass", "macspec tok/s", "tok/pass",
        "vs mlx-lm", "95%", "vs mlx-lm speculative", "95%",
    )  # fmt: skip
    for temperature in sorted({it.temperature for it in found}):
        rows = [
            (
                it.task,
                f"{it.speeds[0]:.1f}",
                f"{it.speeds[1]:.1f} @{it.depth}",
                f"{it.tokens_per_pass[1]:.2f}",
                f"{it.speeds[2]:.1f}",
                f"{it.tokens_per_pass[2]:.2f}",
                *ratio_columns(it.over_plain),
                *ratio_columns(it.over_rival),
            )
            for it in found
            if it.temperature == temperature
        ]
        yield Table(f"temperature {temperature:g}", columns, rows)


def verdict(found: Sequence[Found]) -> Iterator[str]:
    """What holds and what does not, cell by cell."""
    above = [it for it in found if it.temperature > 0]
    yield (
        f"the interval over plain begins at {LEAST:g} or above in {sum(it.held for it in found)} "
        f"of {len(found)} cells{_named([it for it in found if not it.held])}"
    )
    yield (
        f"ahead of mlx-lm's speculation in tokens per pass and speed in "
        f"{sum(it.leads for it in above)} of {len(above)} cells above temperature 0"
        f"{_named([it for it in above if not it.leads])}"
    )


def _head(document: Record) -> Iterator[str]:
    plan, pair = document["plan"], document["models"]
    models = f"target {model_words(pair['target'])}, draft {model_words(pair['draft'])}"
    if head := pair["head"]:
        models += f", macspec's head {head['name']} ({head['parameters'] / 1e6:,.1f}M parameters)"
    yield f"{setup_words(document['machine'])}; {models}"
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


def _named(found: Sequence[Found]) -> str:
    names = ", ".join(f"{it.task.removesuffix(FORCED)} at {it.temperature:g}" for it in found)
    return f"; not in {names}" if names else ""


def _at(depth: int | str) -> str:
    return f"{MLX_LM_DRAFT}@{depth}"


def _row(sample: Sample) -> list[Any]:
    written, stats = sample.written, sample.written.stats
    counts = [getattr(sample, name) for name in PLACE] + [getattr(stats, name) for name in COUNTED]
    ttft, decode = round(stats.ttft_s or 0.0, 6), round(stats.seconds.decode, 6)
    return [*counts, ttft, written.decode_tokens, decode]


def samples_of(document: Record) -> list[Sample]:
    """The replies of a document, as far as tables need them; a ValueError if it is damaged."""
    asked = {it["id"]: it for it in document["questions"]}
    samples = []
    for row in document["rows"]:
        it = dict(zip(COLUMNS, row, strict=True))
        question = asked[it["question"].partition("/")[0]]
        counter = ReplyCounter(
            **{name: it[name] for name in COUNTED},
            first_tokens=it["tokens"] - it["decode_tokens"],
            prefill=it["ttft_s"],
            decode=it["decode_s"],
        )
        place = {name: it[name] for name in PLACE}
        kind = {"workload": question["task"], "forced": question["forced"]}
        written = Written((), "", "", counter.stats())
        samples.append(Sample(**place, **kind, at=0.0, written=written))
    return samples
