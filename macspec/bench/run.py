"""A measurement: all arms write the same replies, one arm directly after the other, over and over.

For each repeat, temperature and question all arms follow each other, in an order that rotates by
one each time, so that heat, other programs and whatever else drifts affects all of them alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ..errors import BadOptionError
from ..models import Pair
from ..power import ClockWatch, Conditions, Meter, conditions
from ..sampling import Sampling
from .arms import MLX_LM, MLX_LM_DRAFT, PLAIN, ArmFactory, ArmName, for_mlx_lm
from .cells import Cell, cells
from .costs import UNKNOWN, Costs, measure_costs
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


NOT_VARIED = (
    "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip
"""Of the sampling, what is as it is by default."""


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

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "temperatures": list(self.temperatures),
            "repeats": self.repeats,
            "seed": self.seed,
            "end_of_text": "respected" if self.ends else "ignored",
            "cool_down_s": self.cool_down,
            "minutes": self.minutes,
            **{name: getattr(Sampling(), name) for name in NOT_VARIED},
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

LATER = Step(0, 0, None, "writing the replies that later turns follow")


@dataclass(frozen=True, slots=True)
class Lap:
    """One question, and the arms that answer it in turn."""

    question: Question
    temperature: float
    repeat: int
    seed: int
    arms: tuple[str, ...]

    @property
    def cell(self) -> tuple[str, float, int]:
        """As its samples have it."""
        return self.question.id, self.temperature, self.repeat


class EnergyLog:
    """Puts into samples the joules of their decode, if the machine's counters are fast enough."""

    def __init__(self, meter: Meter, samples: list[Sample]) -> None:
        self._meter, self._samples = meter, samples
        self._open: list[tuple[float, float, int]] = []
        """Begin and end of a reply, and its place in the samples."""

    def end(self, began: float) -> None:
        """The newest sample's reply is over; ``began`` is what ``meter.begin`` gave."""
        end = self._meter.mark()
        start = max(began, end - self._samples[-1].written.stats.seconds.decode)
        self._open.append((start, end, len(self._samples) - 1))
        while self._open and (len(self._open) > OPEN or self._meter.settled(*self._open[0][:2])):
            self._close()

    def settle(self) -> None:
        """Close what is open, after seconds of waiting at most."""
        if self._open:
            self._meter.settle(*self._open[-1][:2])
        while self._open:
            self._close()

    def _close(self) -> None:
        start, end, place = self._open.pop(0)
        sample = self._samples[place]
        energy = self._meter.energy(start, end, sample.written.decode_tokens)
        self._samples[place] = replace(sample, energy=energy)


def every_lap(run: Run) -> Iterator[Lap]:
    """In each repeat every question at every temperature, to all arms."""
    repeats, places = range(run.protocol.repeats), range(len(run.questions))
    for repeat, temperature, index in product(repeats, run.protocol.temperatures, places):
        yield run.lap(repeat, temperature, index, [*run.arms])


class Run:
    """Measures arms on questions. Whatever ends it, what was measured until then is kept.

    Args:
        pair: what the arms run; its target judges replies that should be equal.
        arms: each with a name of its own.
        laps: what is measured, made while it is.
        samples: of laps that were measured before; they are not measured again.
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
        laps: Callable[[Run], Iterator[Lap]] = every_lap,
        samples: Sequence[Sample] = (),
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
        self.costs, self.left_out = costs or UNKNOWN, left_out
        self.samples = [*samples]
        self.conditions: list[tuple[float, Conditions]] = []
        """What the machine was like from a moment on."""
        self.not_answered: dict[str, int] = {}
        """By reason, replies that an arm could not give."""
        self.hot = 0
        """Replies that were measured although the machine was hot."""
        self.seconds = 0.0
        self.ended = "interrupted"
        """all: everything was measured; time: the time was up; interrupted."""
        self._laps, self.kv_bits, self._progress = laps, kv_bits, progress
        self._clock, self._rest, self._state = clock, rest, state
        self._meter, self._energy = meter, None if meter is None else EnergyLog(meter, self.samples)
        self._watch = ClockWatch()
        self._began = clock() if began is None else began
        self._done = self._timed = 0
        self._taken = 0.0
        self._warm: set[tuple[str, float]] = set()
        self.total = sum(len(lap.arms) for lap in self.missing())

    def measure(self) -> Iterator[Sample]:
        """Measure what is missing, and let go of the arms; yields each sample once it is there."""
        try:
            self._look()
            minutes = self.protocol.minutes
            for lap in self.missing():
                if minutes is not None and self._clock() - self._began >= 60 * minutes:
                    self.ended = "time"
                    break
                yield from self._answered(lap)
            else:
                self.ended = "all"
            self._look()
        finally:
            self.seconds = self._clock() - self._began
            if self._energy is not None:
                self._energy.settle()
            for arm in self.arms.values():
                arm.close()

    def missing(self) -> Iterator[Lap]:
        """The laps that are not among the samples."""
        there = {sample.cell for sample in self.samples}
        return (lap for lap in self._laps(self) if lap.cell not in there)

    def lap(self, repeat: int, temperature: float, index: int, names: Sequence[str]) -> Lap:
        """One question to some arms, of which another is the first in each repeat."""
        seed = self.protocol.seed + SEEDS * repeat + index
        turn = (repeat + index) % len(names)
        arms = (*names[turn:], *names[:turn])
        return Lap(self.questions[index], temperature, repeat, seed, arms)

    def profile(self) -> dict[str, dict[str, Any]]:
        """Where the rounds' time goes, of macspec's own arms, by name and temperature."""
        found: dict[str, dict[str, Any]] = {}
        for temperature in self.protocol.temperatures:
            sampling = Sampling(temperature=temperature)
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
        kv_bits = self.kv_bits if base.kv_bits is None else base.kv_bits
        explained = judge(self.pair, self.questions, kv_bits)
        equals = {it.text: it.keyed for it in names if it.kv_bits == base.kv_bits}
        compared = list(compare(self.samples, self.baseline, equals, explained))
        costs = {it.text: self.costs for it in names if it.usual and it.at_once == 1}
        arms = list(self.arms)
        return cells(self.samples, self.baseline, arms, costs=costs, compared=compared), compared

    def _answered(self, lap: Lap) -> Iterator[Sample]:
        sampling = Sampling(temperature=lap.temperature, seed=lap.seed)
        arms = [self.arms[name] for name in lap.arms]
        for arm in arms:
            self._warm_up(arm, lap.temperature)
        self._cool_down()
        for arm in arms:
            self._announce(arm, lap.question)
            reason = arm.why_not(lap.question)
            if reason is None:
                yield self._measured(arm, lap, sampling)
            else:
                why = f"{arm.name}: {reason}"
                self.not_answered[why] = self.not_answered.get(why, 0) + 1
            self._done += 1

    def _warm_up(self, arm: Arm, temperature: float) -> None:
        if (arm.name, temperature) in self._warm:
            return
        self._warm.add((arm.name, temperature))
        self._progress(Step(0, self.total, None, f"warming up {arm.name}"))
        sampling = Sampling(temperature=temperature, seed=0)
        able = [it for it in self.questions if arm.why_not(it) is None]
        arm.prepare(able, sampling, self.protocol.ends)

    def _measured(self, arm: Arm, lap: Lap, sampling: Sampling) -> Sample:
        if self.protocol.cool_down:
            self._rest(self.protocol.cool_down)
        self._watch.jumped()
        mark = None if self._meter is None else self._meter.begin()
        began = self._clock()
        written = arm.write(lap.question, sampling, self.protocol.ends)
        self._taken += self._clock() - began + self.protocol.cool_down
        self._timed += 1
        sample = Sample(
            arm=arm.name,
            question=lap.question.id,
            workload=lap.question.workload,
            forced=lap.question.forced is not None,
            temperature=lap.temperature,
            repeat=lap.repeat,
            seed=lap.seed,
            at=began - self._began,
            written=written,
            slept=self._watch.jumped(),
        )
        self.samples.append(sample)
        if self._energy is not None and mark is not None:
            self._energy.end(mark)
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
        if not self.conditions or self.conditions[-1][1] != state:
            self.conditions.append((self._clock() - self._began, state))
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
    progress(LATER)
    writer = MacspecArm("", pair, DecodeConfig("off", kernels=factory.kernels))
    return Run(
        pair,
        [factory.make(name) for name in parsed],
        with_later_turns(questions, pair, writer),
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

    With ``quick`` mlx-lm drafts as deep as it does by default; else its best depth is looked for.
    """
    arms = [PLAIN, "auto"] if quick else [PLAIN, "auto", "auto:keyed"]
    drafting = f"{MLX_LM_DRAFT}@{OWN_DEPTH}" if quick else MLX_LM_DRAFT
    return [*arms, MLX_LM, *([drafting] if for_mlx_lm(pair).draft is not None else [])]
