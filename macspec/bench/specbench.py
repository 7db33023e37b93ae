"""Spec-Bench's six tasks on one pair: macspec beside mlx-lm, at any time to be gone on with.

First mlx-lm's own speculation tries its depths on each task at each temperature, on the very
questions that are asked later; at the fastest of them it is then compared. In the comparison its
plain loop, its speculation and macspec answer each question in turn, over and over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..control import AcceptanceEstimate, ControlState, CostCurve
from ..errors import BadOptionError
from ..models import Pair
from ..power import ClockWatch
from ..sampling import Sampling
from ..session import Session
from .macspecarm import DecodeConfig, MacspecArm
from .mlxlm import MlxLmArm
from .promptfile import MT_BENCH
from .questions import Arm, Question, ready
from .run import SEEDS, Step
from .specrows import OURS, PLAIN, RIVAL, TRIAL, Row, best_depths
from .tasks import Task

TASKS = (MT_BENCH, "translation", "summarization", "qa", "math_reasoning", "rag")

ANSWER = 24
"""Tokens that a recorded answer must have, or there would be hardly a decode to measure."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured."""

    temperatures: tuple[float, ...] = (0.0, 0.8)
    tasks: int = 8
    """Questions of each task; of those with two turns both are asked."""
    repeats: int = 3
    draws: int = 4
    """Times as many of them where replies are drawn, since each of those is another text."""
    max_tokens: int = 256
    """Longest reply."""
    depths: tuple[int, ...] = (1, 2, 3, 4, 6, 8)
    """Among which the rival's best is looked for."""
    seed: int = 1

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            name: list(it) if isinstance(it, tuple) else it for name, it in asdict(self).items()
        }


@dataclass(frozen=True, slots=True)
class _Lap:
    """One question to some arms, one directly after the other."""

    repeat: int
    temperature: float
    index: int
    arms: tuple[str, ...]


def chosen(tasks: Sequence[Task], pair: Pair, plan: Plan) -> list[Question]:
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
        fitting, _ = ready(own, pair, plan.max_tokens)
        least = min(ANSWER, plan.max_tokens)
        whole = [it for it in fitting if it.forced is None or len(it.forced) >= least]
        if len(whole) < plan.tasks:
            raise BadOptionError(
                f"only {len(whole)} questions of {name} fit the context of {pair.context} "
                f"positions and have a recorded answer of {least} tokens, if they need one: give a "
                "smaller --tasks or --max-tokens"
            )
        questions += [whole[len(whole) * at // plan.tasks] for at in range(plan.tasks)]
    return questions


class SpecBench:
    """Measures what is still missing of a plan.

    Args:
        pair: from ``load_pair``.
        questions: from ``chosen``.
        plan: how.
        rows: what was measured already.
        learned: what macspec's controller knew when it was last stopped, by temperature; kept up
            to date by ``close``.
        said: replies to first turns that are known, by question; later ones are added.
        kernels: what macspec computes with.
        clock: seconds.
        progress: is told each step.
    """

    def __init__(
        self,
        pair: Pair,
        questions: Sequence[Question],
        plan: Plan,
        *,
        rows: Sequence[Row] = (),
        learned: dict[str, Any] | None = None,
        said: dict[str, str] | None = None,
        kernels: Any = "auto",
        clock: Callable[[], float] = time.perf_counter,
        progress: Callable[[Step], None] = lambda step: None,
    ) -> None:
        self.pair, self.plan = pair, plan
        self.rows = list(rows)
        self.learned = {} if learned is None else learned
        self.said = {} if said is None else said
        self._kernels, self._clock, self._progress = kernels, clock, progress
        self._watch = ClockWatch()
        self._arms: dict[str, Arm] = {}
        self._warm: set[tuple[str, float]] = set()
        self.questions = self._with_second_turns(questions)
        self.tasks = {question.id: question.workload for question in self.questions}

    @property
    def left(self) -> int:
        """Laps that are still to be done."""
        return len(self._missing(self._trials())) + len(self._missing(self._comparisons()))

    @property
    def complete(self) -> bool:
        """Whether the plan is done."""
        return self.left == 0

    def run(self, until: float | None = None) -> Iterator[None]:
        """Go on measuring.

        Args:
            until: a moment of the clock after which no further question is begun.

        Yields:
            After each question, when all arms have answered it and their rows are there.
        """
        begun, done, total = self._clock(), 0, self.left
        for laps in (self._trials, self._comparisons):
            for lap in self._missing(laps()):
                if until is not None and self._clock() >= until:
                    return
                pace = (self._clock() - begun) / done if done else None
                seconds = None if pace is None else pace * (total - done)
                what = f"{self.questions[lap.index].workload} at {lap.temperature:g}"
                self._progress(Step(done, total, seconds, what))
                self.rows += self._measured(lap)
                done += 1
                yield

    def close(self) -> None:
        """Keep what macspec learned, and let go of the arms."""
        for arm in self._arms.values():
            arm.close()
        self._arms.clear()
        self._warm.clear()

    def _trials(self) -> Iterator[_Lap]:
        arms = tuple(f"{RIVAL}@{depth}" for depth in self.plan.depths)
        for temperature in self.plan.temperatures:
            for index in range(len(self.questions)):
                yield _Lap(TRIAL, temperature, index, arms)

    def _comparisons(self) -> Iterator[_Lap]:
        """KnownCosts once all trials are done."""
        found = best_depths(self.rows, self.tasks)
        for repeat in range(self.plan.repeats * self.plan.draws):
            for temperature in self.plan.temperatures:
                for index, question in enumerate(self.questions):
                    drawn = temperature > 0 and question.forced is None
                    if repeat >= self.plan.repeats and not drawn:
                        continue
                    speeds = found.get((temperature, question.workload), {0: 0.0})
                    best = max(speeds, key=speeds.__getitem__)
                    arms = (PLAIN, f"{RIVAL}@{best}", OURS)
                    turn = (repeat + index) % len(arms)
                    yield _Lap(repeat, temperature, index, arms[turn:] + arms[:turn])

    def _missing(self, laps: Iterator[_Lap]) -> list[_Lap]:
        there = {(row.repeat, row.temperature, row.question) for row in self.rows}
        ids = [question.id for question in self.questions]
        return [it for it in laps if (it.repeat, it.temperature, ids[it.index]) not in there]

    def _measured(self, lap: _Lap) -> list[Row]:
        """The rows of a lap; once more where the machine slept in the midst of it."""
        question = self.questions[lap.index]
        seed = self.plan.seed + SEEDS * (lap.repeat + 1) + lap.index
        sampling = Sampling(temperature=lap.temperature, seed=seed)
        while True:
            rows = []
            self._watch.jumped()
            for name in lap.arms:
                arm = self._arm(name, sampling)
                written = arm.write(question, sampling, True)
                rows.append(Row.of(name, question.id, lap.temperature, lap.repeat, seed, written))
                if isinstance(arm, _Remembering):
                    arm.idle(sampling)
            if not self._watch.jumped():
                return rows

    def _arm(self, name: str, sampling: Sampling) -> Arm:
        if name not in self._arms:
            self._arms[name] = self._made(name)
        arm = self._arms[name]
        if (name, sampling.temperature) not in self._warm:
            self._warm.add((name, sampling.temperature))
            arm.prepare(self.questions[:1], sampling, True)
        return arm

    def _made(self, name: str) -> Arm:
        if name == OURS:
            return _Remembering(
                self.pair, DecodeConfig(kernels=self._kernels), self.learned, self._clock
            )
        depth = 0 if name == PLAIN else int(name.removeprefix(f"{RIVAL}@"))
        return MlxLmArm(name, self.pair, depth=depth, clock=self._clock)

    def _with_second_turns(self, questions: Sequence[Question]) -> list[Question]:
        """Each question, and its second turn after the target's own greedy reply to the first."""
        writer = MacspecArm("", self.pair, DecodeConfig("off", kernels=self._kernels))
        whole: list[Question] = []
        for question in questions:
            whole.append(question)
            task = question.task
            for turn in task.then[:1]:
                if question.id not in self.said:
                    what = "writing what second turns refer to"
                    self._progress(Step(0, 0, None, what))
                    written = writer.write(question, Sampling(temperature=0), True)
                    self.said[question.id] = written.text
                said = {"role": "assistant", "content": self.said[question.id]}
                asked = (*task.messages, said, {"role": "user", "content": turn})
                second = replace(task, id=f"{task.id}/2", messages=asked, then=())
                with suppress(BadOptionError):  # it no longer fits the context
                    whole += ready([second], self.pair, self.plan.max_tokens)[0]
        writer.close()
        return whole


class _Remembering(MacspecArm):
    """Macspec as in a chat: idle between replies, and with what it learned in earlier ones."""

    def __init__(
        self, pair: Pair, config: DecodeConfig, learned: dict[str, Any], clock: Callable[[], float]
    ) -> None:
        self._learned = learned
        self._open: dict[float, Session] = {}
        super().__init__(OURS, pair, config, clock=clock)

    def session(self, sampling: Sampling, ends: bool) -> Session:
        temperature = sampling.temperature
        if temperature not in self._open:
            kept = _Kept(self._learned, f"{temperature:g}")
            self._open[temperature] = self.config.session(self.pair, self._clock, kept)
        return self._open[temperature]

    def idle(self, sampling: Sampling) -> None:
        """The moment after a reply, in which costs at this length of the context are measured."""
        for _ in self.session(sampling, True).measure():
            pass

    def close(self) -> None:
        for session in self._open.values():
            if session.stats.replies:
                session.remember()
            session.close()
        self._open.clear()


class _Kept(ControlState):
    """A state inside of a document."""

    def __init__(self, learned: dict[str, Any], key: str) -> None:
        self._learned, self._key = learned, key

    def load(self, curve: CostCurve, acceptance: AcceptanceEstimate) -> None:
        stored: Mapping[str, Any] = self._learned.get(self._key, {})
        if stored:
            curve.restore(stored["costs"])
            acceptance.restore(stored["survival"])

    def save(self, curve: CostCurve, acceptance: AcceptanceEstimate) -> None:
        self._learned[self._key] = {"costs": curve.as_dict(), "survival": acceptance.as_dict()}
