"""The protocol: every arm writes the same replies, one arm after the other, over and over.

For each repeat, temperature and question all arms follow each other directly, in an order that is
turned by one each time, so that heat, other programs and whatever else drifts hits all alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import BadOptionError
from ..power import ClockWatch, Conditions, conditions
from ..sampling import Sampling
from .arm import Arm, Question
from .energylog import EnergyLog
from .pace import Pace
from .sample import Sample

COOL = 5.0
"""Seconds between two looks at the thermal state while the machine cools down."""

PATIENCE = 180.0
"""Seconds after which a machine that does not cool down is measured as it is."""

SEEDS = 1000
"""Seeds between those of two repeats."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """How it is measured."""

    temperatures: tuple[float, ...] = (0.0, 0.7, 1.0)
    repeats: int = 5
    seed: int = 1
    """The seed of the first question in the first repeat; the others follow from it."""
    ends: bool = True
    """Whether the target's end of turn ends a reply; otherwise all run to their limit."""
    cool_down: float = 0.0
    """Seconds of rest before each reply."""
    minutes: float | None = None
    """After which no further question is begun, what comes before the first one included."""
    sampling: Sampling = field(default_factory=Sampling)
    """The same for every arm, but for its temperature and seed."""

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "temperatures": list(self.temperatures),
            "repeats": self.repeats,
            "seed": self.seed,
            "end_of_text": "respected" if self.ends else "ignored",
            "cool_down_s": self.cool_down,
            "minutes": self.minutes,
            "top_p": self.sampling.top_p,
            "top_k": self.sampling.top_k,
            "min_p": self.sampling.min_p,
            "repetition_penalty": self.sampling.repetition_penalty,
            "presence_penalty": self.sampling.presence_penalty,
            "frequency_penalty": self.sampling.frequency_penalty,
            "order": "repeat, temperature, question; all arms in turn, the first one changing",
        }


@dataclass(frozen=True, slots=True)
class Step:
    """What is about to be done, for a progress bar."""

    done: int
    total: int
    seconds_left: float | None
    what: str


@dataclass(frozen=True, slots=True)
class Condition:
    """What the machine was like from a moment on."""

    at: float
    state: Conditions


class Measurement:
    """Runs a protocol. Whatever ends it, what was measured until then is there.

    Args:
        arms: each with a name of its own.
        questions: the same for all of them.
        protocol: how.
        clock: seconds.
        rest: waits so many seconds.
        state: tells what the machine is like.
        energy: measures joules; None: nobody does.
        progress: is told each step before it is done.
        began: when the time of the protocol began to run; None: now.
    """

    def __init__(
        self,
        arms: Sequence[Arm],
        questions: Sequence[Question],
        protocol: Protocol,
        *,
        clock: Callable[[], float] = time.perf_counter,
        rest: Callable[[float], None] = time.sleep,
        state: Callable[[], Conditions] = conditions,
        energy: EnergyLog | None = None,
        progress: Callable[[Step], None] = lambda step: None,
        began: float | None = None,
    ) -> None:
        names = [arm.name for arm in arms]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise BadOptionError(f"the arm {twice} is there twice")
        self.arms, self.questions, self.protocol = arms, questions, protocol
        self.samples: list[Sample] = []
        self.conditions: list[Condition] = []
        self.left_out: dict[str, int] = {}
        """By reason, replies that an arm could not give."""
        self.hot = 0
        """Replies that were measured although the machine was hot."""
        self.seconds = 0.0
        self.total = protocol.repeats * len(protocol.temperatures) * len(questions) * len(arms)
        self.ended = "interrupted"
        """all: everything was measured; time: until the time was over; interrupted."""
        self._clock, self._rest, self._state = clock, rest, state
        self._energy, self._progress = energy, progress
        self._watch = ClockWatch()
        self._began = clock() if began is None else began
        self._pace = Pace()
        self._done = 0

    def run(self) -> Iterator[Sample]:
        """Prepare the arms, then measure.

        Yields:
            Each sample as it is there; all of them are in ``samples`` too.
        """
        try:
            self._prepare()
            self._look()
            for repeat, temperature, index in self._laps():
                if self._late:
                    self.ended = "time"
                    break
                yield from self._lap(repeat, temperature, index)
            else:
                self.ended = "all"
            self._look()
        finally:
            self.seconds = self._clock() - self._began
            if self._energy is not None:
                self.samples = self._energy.settle(self.samples)

    def _prepare(self) -> None:
        for temperature in self.protocol.temperatures:
            sampling = replace(self.protocol.sampling, temperature=temperature, seed=0)
            for arm in self.arms:
                self._progress(Step(0, self.total, None, f"warming up {arm.name}"))
                able = [it for it in self.questions if arm.why_not(it, sampling) is None]
                arm.prepare(able, sampling, self.protocol.ends)

    @property
    def _late(self) -> bool:
        minutes = self.protocol.minutes
        return minutes is not None and self._clock() - self._began >= 60 * minutes

    def _laps(self) -> Iterator[tuple[int, float, int]]:
        for repeat in range(self.protocol.repeats):
            for temperature in self.protocol.temperatures:
                for index in range(len(self.questions)):
                    yield repeat, temperature, index

    def _lap(self, repeat: int, temperature: float, index: int) -> Iterator[Sample]:
        question = self.questions[index]
        seed = self.protocol.seed + SEEDS * repeat + index
        sampling = replace(self.protocol.sampling, temperature=temperature, seed=seed)
        self._cool_down()
        turn = (repeat + index) % len(self.arms)
        for arm in [*self.arms[turn:], *self.arms[:turn]]:
            self._tell(arm, question)
            reason = arm.why_not(question, sampling)
            if reason is None:
                sample = self._measured(arm, question, sampling, repeat)
                self.samples.append(sample)
                self._done += 1
                yield sample
            else:
                said = f"{arm.name}: {reason}"
                self.left_out[said] = self.left_out.get(said, 0) + 1
                self._done += 1

    def _measured(self, arm: Arm, question: Question, sampling: Sampling, repeat: int) -> Sample:
        if self.protocol.cool_down:
            self._rest(self.protocol.cool_down)
        self._watch.jumped()
        mark = None if self._energy is None else self._energy.begin()
        began = self._clock()
        written = arm.write(question, sampling, self.protocol.ends)
        seconds = self._clock() - began
        self._pace.add(seconds + self.protocol.cool_down)
        sample = Sample(
            arm=arm.name,
            question=question.id,
            workload=question.workload,
            forced=question.forced is not None,
            temperature=sampling.temperature,
            repeat=repeat,
            seed=sampling.seed or 0,
            at=began - self._began,
            written=written,
            slept=self._watch.jumped(),
        )
        if self._energy is not None and mark is not None:
            self._energy.end(mark, sample)
        return sample

    def _tell(self, arm: Arm, question: Question) -> None:
        left = self._pace.left(self.total - self._done)
        if left is not None and self.protocol.minutes is not None:
            over = 60 * self.protocol.minutes - (self._clock() - self._began)
            left = min(left, max(over, 0.0))
        what = f"{question.workload}, {arm.name}"
        self._progress(Step(self._done, self.total, left, what))

    def _look(self) -> Conditions:
        """Keep what the machine is like, if it is not as before."""
        state = self._state()
        if not self.conditions or self.conditions[-1].state != state:
            self.conditions.append(Condition(self._clock() - self._began, state))
        return state

    def _cool_down(self) -> None:
        """Wait while the machine is too hot to be measured, up to a limit."""
        if self.protocol.cool_down <= 0:
            return
        waited = 0.0
        while self._look().thermal not in (None, "nominal"):
            if waited >= PATIENCE:
                self.hot += len(self.arms)
                return
            said = "waiting for the machine to cool down"
            self._progress(Step(self._done, self.total, None, said))
            self._rest(COOL)
            waited += COOL
