"""Arms that write what a script says, at scripted times, in place of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from macspec.bench.questions import Question
from macspec.bench.sample import ReplyRecorder, Written
from macspec.sampling import Sampling
from macspec.stats import ReplyCounter


class Clock:
    """Seconds that only pass when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Scripted:
    """Passes of so many tokens in so many seconds."""

    def __init__(self, name: str, clock: Clock, tokens: int, seconds: float, drafted: int) -> None:
        self.name, self._clock = name, clock
        self.tokens, self.seconds, self.drafted = tokens, seconds, drafted
        self.asked: list[tuple[str, float, int]] = []
        self.prepared: list[float] = []
        self.closed = 0

    def why_not(self, question: Question) -> str | None:
        return None

    def prepare(self, questions: Sequence[Question], sampling: Sampling, ends: bool) -> None:
        self.prepared.append(sampling.temperature)

    def write(self, question: Question, sampling: Sampling, ends: bool) -> Written:
        self.asked.append((question.id, sampling.temperature, sampling.seed or 0))
        recorder = ReplyRecorder(self._clock.now, ReplyCounter(prompt_tokens=len(question.ids)))
        left = question.max_tokens
        ids: list[int] = []
        while left:
            tokens = min(self.tokens, left)
            self._clock.now += self.seconds
            accepted = tokens - 1
            recorder.count(self._clock.now, tokens, "draft", self.drafted, accepted, 0.0)
            ids += [1] * tokens
            left -= tokens
        return recorder.written(ids, "x")

    def describe(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        self.closed += 1
