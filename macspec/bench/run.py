"""A measurement: all arms write the same replies, one arm directly after the other, over and over.

For each repeat, temperature and question all arms follow each other, in an order that rotates by
one each time, so that heat, other programs and whatever else drifts affects all of them alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import BadOptionError
from ..models import Pair
from ..power import ClockWatch, Conditions, Meter, conditions
from ..sampling import Sampling
from .arms import MLX_LM, MLX_LM_DRAFT, PLAIN, ArmFactory, ArmName
from .cells import Cell, cells
from .costs import Costs, measure_costs
from .equality import Compared, compare, judge
from .macspecarm import DecodeConfig, MacspecArm, profile
from .mlxlm import OWN_DEPTH
from .questions import Arm, Question, ready, with_later_turns
from .sample import Sample
from .tasks import Task

ESTIMATED = 3
"""Replies after which the time left is estimated."""

OPEN = 64
"""Replies whose joules may still be unknown: counters move in steps of up to seconds."""

COOL = 5.0
"""Seconds between two looks at the thermal state while the machine cools down."""

PATIENCE = 180.0
"""Seconds after which a machine that does not cool down is measured as it is."""

SEEDS = 1000
"""Seeds between those of two repeats."""

PROFILED = 4
"""Questions whose replies are split."""


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


Progress = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class Condition:
    """What the machine was like from a moment on."""

    at: float
    state: Conditions


@dataclass(frozen=True, slots=True)
class Lap:
    """One question, and the arms that answer it in turn."""

    repeat: int
    temperature: float
    index: int
    """Of the question."""
    seed: int
    arms: tuple[str, ...]


class EnergyLog:
    """Joules of the decode of each reply, where the machine's counters are fast enough."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self._open: list[tuple[float, float, Sample]] = []
        self._known: dict[int, Sample] = {}

    def end(self, began: float, sample: Sample) -> None:
        """A reply is over; ``began`` is what ``meter.begin`` gave."""
        end = self.meter.mark()
        start = max(began, end - sample.written.stats.seconds.decode)
        self._open.append((start, end, sample))
        while self._open and (len(self._open) > OPEN or self.meter.settled(*self._open[0][:2])):
            self._close()

    def settle(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples with their joules, after seconds of waiting at most."""
        if self._open:
            self.meter.settle(*self._open[-1][:2])
        while self._open:
            self._close()
        return [self._known.get(id(sample), sample) for sample in samples]

    def _close(self) -> None:
        start, end, sample = self._open.pop(0)
        stats = sample.written.stats
        tokens = round((stats.decode_tokens_per_s or 0.0) * stats.seconds.decode)
        self._known[id(sample)] = replace(sample, energy=self.meter.energy(start, end, tokens))


class Run:
    """Measures arms on questions. Whatever ends it, what was measured until then is kept.

    Args:
        pair: what the arms run; its target judges replies that should be equal.
        arms: each with a name of its own.
        baseline: the arm whose speed is 1; None: the first.
        costs: what passes cost here.
        kv_bits: of all arms that name none.
        left_out: tasks that do not fit the context.
        meter: running, for joules.
        progress: called with each step before it is taken.
        clock, rest, state: time, waiting, and the state of the machine.
        began: when the protocol's time began to run; None: now.
    """

    def __init__(
        self,
        pair: Pair,
        arms: Sequence[Arm],
        questions: Sequence[Question],
        protocol: Protocol,
        *,
        baseline: str | None = None,
        costs: Costs | None = None,
        kv_bits: int | None = None,
        left_out: int = 0,
        meter: Meter | None = None,
        progress: Progress = lambda step: None,
        clock: Callable[[], float] = time.perf_counter,
        rest: Callable[[float], None] = time.sleep,
        state: Callable[[], Conditions] = conditions,
        began: float | None = None,
    ) -> None:
        self.pair, self.questions, self.protocol = pair, questions, protocol
        self.arms = {arm.name: arm for arm in arms}
        self.baseline = next(iter(self.arms)) if baseline is None else baseline
        self.costs, self.left_out = costs or Costs(), left_out
        self.samples: list[Sample] = []
        self.conditions: list[Condition] = []
        self.not_answered: dict[str, int] = {}
        """By reason, replies that an arm could not give."""
        self.hot = 0
        """Replies that were measured although the machine was hot."""
        self.seconds = 0.0
        self.total = protocol.repeats * len(protocol.temperatures) * len(questions) * len(arms)
        self.ended = "interrupted"
        """all: everything was measured; time: the time was up; interrupted."""
        self._kv_bits, self._progress = kv_bits, progress
        self._clock, self._rest, self._state = clock, rest, state
        self._energy = None if meter is None else EnergyLog(meter)
        self._watch = ClockWatch()
        self._began = clock() if began is None else began
        self._done = self._timed = 0
        self._taken = 0.0
        self._warm: set[tuple[str, float]] = set()

    def measure(self) -> Iterator[Sample]:
        """Prepare the arms, measure, and let go of them.

        Yields:
            Each sample once it is there; all of them are in ``samples`` too.
        """
        try:
            for temperature in self.protocol.temperatures:
                for name in self.arms:
                    self._warm_up(name, temperature)
            self._look()
            minutes = self.protocol.minutes
            for lap in self._laps():
                if minutes is not None and self._clock() - self._began >= 60 * minutes:
                    self.ended = "time"
                    break
                for sample in self.lap(lap):
                    self.samples.append(sample)
                    yield sample
            else:
                self.ended = "all"
            self._look()
        finally:
            self.seconds = self._clock() - self._began
            if self._energy is not None:
                self.samples = self._energy.settle(self.samples)
            self.close()

    def lap(self, lap: Lap) -> Iterator[Sample]:
        """Ask one question of some arms, which are warmed up before if they were not yet."""
        question = self.questions[lap.index]
        sampling = replace(self.protocol.sampling, temperature=lap.temperature, seed=lap.seed)
        for name in lap.arms:
            self._warm_up(name, lap.temperature)
        self._cool_down()
        for name in lap.arms:
            arm = self.arms[name]
            self._announce(arm, question)
            reason = arm.why_not(question, sampling)
            if reason is None:
                yield self._measured(arm, question, sampling, lap.repeat)
            else:
                why = f"{arm.name}: {reason}"
                self.not_answered[why] = self.not_answered.get(why, 0) + 1
                self._done += 1

    def close(self) -> None:
        """Let go of the arms."""
        for arm in self.arms.values():
            arm.close()
        self._warm.clear()

    def profile(self) -> dict[str, dict[str, Any]]:
        """Where the rounds' time goes, of macspec's own arms, by name and temperature."""
        found: dict[str, dict[str, Any]] = {}
        for temperature in self.protocol.temperatures:
            sampling = replace(self.protocol.sampling, temperature=temperature)
            for arm in self.arms.values():
                if isinstance(arm, MacspecArm):
                    self._progress(Step(0, 0, None, f"profiling {arm.name}"))
                    split = profile(arm.pair, arm.config, self.questions[:PROFILED], sampling)
                    found.setdefault(arm.name, {})[f"{temperature:g}"] = split
        return found

    def results(self) -> tuple[list[Cell], list[Compared]]:
        """What was found so far: the cells, and the replies beside the baseline's."""
        names = [ArmName.parse(name) for name in self.arms]
        base = next(it for it in names if it.text == self.baseline)

        def sampling(it: Sample) -> Sampling:
            seed = it.seed if it.temperature > 0 else None
            return replace(self.protocol.sampling, temperature=it.temperature, seed=seed)

        kv_bits = self._kv_bits if base.kv_bits is None else base.kv_bits
        explained = judge(self.pair, self.questions, sampling, kv_bits)
        equals = {it.text: it.keyed for it in names if it.kv_bits == base.kv_bits}
        compared = list(compare(self.samples, self.baseline, equals, explained))
        costs = {it.text: self.costs for it in names if it.usual and it.at_once == 1}
        arms = list(self.arms)
        return cells(self.samples, self.baseline, arms, costs=costs, compared=compared), compared

    def _laps(self) -> Iterator[Lap]:
        names, protocol = tuple(self.arms), self.protocol
        for repeat in range(protocol.repeats):
            for temperature in protocol.temperatures:
                for index in range(len(self.questions)):
                    seed = protocol.seed + SEEDS * repeat + index
                    turn = (repeat + index) % len(names)
                    yield Lap(repeat, temperature, index, seed, names[turn:] + names[:turn])

    def _warm_up(self, name: str, temperature: float) -> None:
        if (name, temperature) in self._warm:
            return
        self._warm.add((name, temperature))
        self._progress(Step(0, self.total, None, f"warming up {name}"))
        arm, sampling = self.arms[name], self.protocol.sampling
        sampling = replace(sampling, temperature=temperature, seed=0)
        able = [it for it in self.questions if arm.why_not(it, sampling) is None]
        arm.prepare(able, sampling, self.protocol.ends)

    def _measured(self, arm: Arm, question: Question, sampling: Sampling, repeat: int) -> Sample:
        if self.protocol.cool_down:
            self._rest(self.protocol.cool_down)
        self._watch.jumped()
        mark = None if self._energy is None else self._energy.meter.begin()
        began = self._clock()
        written = arm.write(question, sampling, self.protocol.ends)
        self._taken += self._clock() - began + self.protocol.cool_down
        self._done, self._timed = self._done + 1, self._timed + 1
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

    def _announce(self, arm: Arm, question: Question) -> None:
        left = None
        if self._timed >= ESTIMATED:
            left = (self.total - self._done) * self._taken / self._timed
            if self.protocol.minutes is not None:
                over = 60 * self.protocol.minutes - (self._clock() - self._began)
                left = min(left, max(over, 0.0))
        self._progress(Step(self._done, self.total, left, f"{question.workload}, {arm.name}"))

    def _look(self) -> Conditions:
        """Record the state of the machine if it has changed."""
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
            what = "waiting for the machine to cool down"
            self._progress(Step(self._done, self.total, None, what))
            self._rest(COOL)
            waited += COOL


def prepare(
    pair: Pair,
    tasks: Sequence[Task],
    names: Sequence[str],
    protocol: Protocol,
    *,
    baseline: str | None = None,
    factory: ArmFactory | None = None,
    longest: int | None = None,
    progress: Progress = lambda step: None,
    **settings: Any,
) -> Run:
    """A run of arms on tasks, with what passes cost here measured and later turns written.

    Args:
        tasks: those that do not fit the context are left out.
        baseline: None: the first plain arm, else the first.
        longest: of replies, if shorter than the tasks' own.
        settings: as for ``Run``.

    Raises:
        BadOptionError: an arm cannot be had with this pair, or no task fits.
    """
    factory = factory or ArmFactory(pair)
    parsed = [ArmName.parse(text) for text in names]
    if not parsed:
        raise BadOptionError("there is no arm to measure")
    twice = next((it for it in names if list(names).count(it) > 1), None)
    if twice is not None:
        raise BadOptionError(f"the arm {twice} is named twice; call the second one {twice}#2")
    plain = (it.text for it in parsed if it.method == "off")
    baseline = baseline or next(plain, names[0])
    if baseline not in names:
        raise BadOptionError(f"the baseline {baseline} is not among the arms")
    questions, left_out = ready(tasks, pair, longest)
    for name in parsed:  # refuse the impossible now, and not after a minute of measuring
        factory.make(name).close()
    steps = measure_costs(pair, questions, kv_bits=factory.kv_bits, kernels=factory.kernels)
    for number, factory.costs in enumerate(steps, 1):
        progress(Step(0, 0, None, f"measuring the cost of passes, step {number}"))
    if any(question.task.then for question in questions):
        progress(Step(0, 0, None, "writing the replies that later turns follow"))
        writer = MacspecArm("", pair, DecodeConfig("off", kernels=factory.kernels))
        questions = with_later_turns(questions, pair, writer)
    return Run(
        pair,
        [factory.make(name) for name in parsed],
        questions,
        protocol,
        baseline=baseline,
        costs=factory.costs,
        kv_bits=factory.kv_bits,
        left_out=left_out,
        progress=progress,
        **settings,
    )


def usual_arms(pair: Pair, *, quick: bool = False) -> list[str]:
    """Plain, what macspec does by itself, and mlx-lm without and with the draft model.

    Args:
        quick: without looking for mlx-lm's best depth: at the one that it has by itself.
    """
    arms = [PLAIN, "auto"] if quick else [PLAIN, "auto", "auto:keyed"]
    drafting = f"{MLX_LM_DRAFT}@{OWN_DEPTH}" if quick else MLX_LM_DRAFT
    return [*arms, MLX_LM, *([drafting] if pair.draft is not None else [])]
