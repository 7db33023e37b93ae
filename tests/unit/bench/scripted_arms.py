"""Arms that compute nothing: their times are drawn, and the clock is theirs."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from macspec.bench.costs import Costs
from macspec.bench.questions import Question
from macspec.bench.sample import ReplyRecorder, Written
from macspec.bench.tasks import Task
from macspec.sampling import Sampling
from macspec.stats import ReplyCounter


def costs_of(passes: Mapping[int, float], step: float, reading: float | None = None) -> Costs:
    """Of passes by rows in short contexts, and of the draft model."""
    return {
        "passes": [[rows, 0, cost] for rows, cost in passes.items()],
        "steps": {"draft": step},
        "reading": {} if reading is None else {"draft": reading},
    }


@dataclass
class Clock:
    """Seconds that only pass when somebody says so."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now

    def rest(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class ScriptedArm:
    """Writes as many tokens as are asked for, a token a pass."""

    name: str
    clock: Clock
    speed: float = 50.0
    """Tokens a second, of a task of difficulty 1."""
    shake: float = 0.0
    """Standard deviation of the logarithm of a reply's time."""
    hiccups: float = 0.0
    """Share of replies in which something else takes the machine."""
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    cannot: str | None = None
    ids: tuple[int, ...] | None = None
    asked: list[tuple[str, float, int | None]] = field(default_factory=list)
    prepared: list[float] = field(default_factory=list)
    closed: bool = False

    def why_not(self, question: Question) -> str | None:
        return self.cannot

    def prepare(self, questions: Sequence[Question], sampling: Sampling, ends: bool) -> None:
        self.prepared.append(sampling.temperature)
        self.clock.now += 1.0

    def write(self, question: Question, sampling: Sampling, ends: bool) -> Written:
        self.asked.append((question.id, sampling.temperature, sampling.seed))
        seconds = difficulty(question) * self.chance.lognormvariate(0, self.shake) / self.speed
        if self.chance.random() < self.hiccups:
            seconds *= 1 + self.chance.expovariate(1.0)
        recorder = ReplyRecorder(self.clock.now, ReplyCounter(prompt_tokens=len(question.ids)))
        for _ in range(question.max_tokens):
            self.clock.now += seconds
            recorder.count(self.clock.now, 1)
        ids = list(range(question.max_tokens)) if self.ids is None else list(self.ids)
        return recorder.written(ids, "words", knows_idle=True)

    def describe(self) -> Mapping[str, Any]:
        return {"program": "scripted"}

    def close(self) -> None:
        self.closed = True


def difficulty(question: Question) -> float:
    """How much longer than usual a task takes: the same for all arms."""
    return random.Random(question.id).lognormvariate(0, 0.8)


def questions(count: int, *, tokens: int = 9, workload: str = "chat") -> list[Question]:
    """So many, each with a prompt of four tokens."""
    made = []
    for number in range(1, count + 1):
        name = f"{workload}-{number}"
        task = Task(name, workload, ({"role": "user", "content": "secret words"},), tokens)
        made.append(Question(name, task, (1, 2, 3, 4), tokens))
    return made
