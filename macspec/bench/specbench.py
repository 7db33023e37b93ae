"""Spec-Bench's six tasks on one pair: a preset of ``Run`` beside mlx-lm, which can be resumed.

First mlx-lm's speculation tries its depths on the very questions that are asked later. The fastest
depth of each task and temperature is compared with mlx-lm's plain loop and macspec.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

from ..errors import BadOptionError
from ..kernels import Kernels
from ..models import Pair
from ..power import conditions
from .arms import MLX_LM
from .document import load_average, machine, models, reading, write
from .macspecarm import DecodeConfig, MacspecArm
from .mlxlm import MlxLmArm
from .questions import Arm, Question, ready, with_later_turns
from .run import LATER, SEEDS, Lap, Progress, Protocol, Run
from .sample import Sample
from .spectables import (
    ARMS,
    COLUMNS,
    MACSPEC,
    TASKS,
    TRIAL,
    at_depth,
    best_depths,
    blocks,
    results,
    row_of,
    samples_of,
)
from .tasks import Task

KIND = "macspec specbench"

FORMAT = 1

ANSWER = 24
"""Tokens that a recorded answer must have, or there would be hardly a decode to measure."""

SAVED = 20.0
"""Seconds between two saves while it is measured."""

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
                *(MlxLmArm(at_depth(depth), pair, depth=depth) for depth in preset.depths),
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
            "cells": [it._asdict() for it in results(samples, self.preset.repeats)],
            "columns": COLUMNS,
            "rows": ROWS,
            **({} if complete else state),
        }
        lines = ",\n".join(f"  {json.dumps(row_of(sample))}" for sample in samples)
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
        preset, depths = self.preset, [at_depth(depth) for depth in self.preset.depths]
        for temperature, index in product(preset.temperatures, range(len(run.questions))):
            yield run.lap(TRIAL, temperature, index, depths)
        # As the file has them, so that a resumed run finds the same.
        rows = {**self._fixed, "rows": [row_of(sample) for sample in run.samples]}
        best = best_depths(samples_of(rows))
        for repeat, temperature, (index, question) in product(
            range(preset.repeats * preset.draws), preset.temperatures, enumerate(run.questions)
        ):
            if repeat < preset.repeats or (temperature > 0 and question.forced is None):
                depth = best.get((temperature, question.workload), 0)
                yield run.lap(repeat, temperature, index, (MLX_LM, at_depth(depth), MACSPEC))

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
