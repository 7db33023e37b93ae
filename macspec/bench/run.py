"""A measurement: every arm writes the same replies, one arm after the other, over and over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import BadOptionError
from ..kernels import Kernels
from ..models import Pair
from ..power import ClockWatch, Conditions, Meter, conditions
from ..sampling import Sampling
from .arms import MLX_LM, MLX_LM_DRAFT, PLAIN, ArmFactory, ArmName
from .cells import Cell, cells
from .costs import Costs, measure_costs
from .equality import Compared, Judge, compare
from .macspecarm import DecodeConfig, MacspecArm, profile
from .mlxlm import OWN_DEPTH
from .questions import Arm, Question, ready, with_replies
from .sample import Sample
from .tasks import Task

LEAST = 3
"""Replies before which nothing is foretold."""


class Pace:
    """Replies that were, and the time of those to come."""

    def __init__(self) -> None:
        self._seconds, self._count = 0.0, 0

    def add(self, seconds: float) -> None:
        """Another reply took so long."""
        self._seconds += seconds
        self._count += 1

    def left(self, replies: int) -> float | None:
        """Seconds of so many replies like those that were; None before there were some."""
        return None if self._count < LEAST else replies * self._seconds / self._count


WAIT = 64
"""Replies whose joules may still be open: counters move in steps of up to seconds."""


class EnergyLog:
    """Windows of a meter, and the samples that they belong to.

    Args:
        meter: running.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._open: list[tuple[float, float, Sample]] = []
        self._known: dict[int, Sample] = {}

    @property
    def reason(self) -> str | None:
        """Why nothing is measured; None while something is."""
        return self._meter.reason

    def begin(self) -> float:
        """A reply begins now."""
        return self._meter.begin()

    def end(self, mark: float, sample: Sample) -> None:
        """It is over, and this is its sample."""
        end = self._meter.mark()
        start = max(mark, end - sample.written.stats.seconds.decode)
        self._open.append((start, end, sample))
        while self._open and (len(self._open) > WAIT or self._meter.settled(*self._open[0][:2])):
            self._close()

    def settle(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples with their joules, after seconds of waiting at most."""
        if self._open:
            self._meter.settle(*self._open[-1][:2])
        while self._open:
            self._close()
        return [self._known.get(id(sample), sample) for sample in samples]

    def _close(self) -> None:
        start, end, sample = self._open.pop(0)
        stats = sample.written.stats
        speed = stats.decode_tokens_per_s or 0.0
        tokens = round(speed * stats.seconds.decode)
        energy = self._meter.energy(start, end, tokens)
        self._known[id(sample)] = replace(sample, energy=energy)


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


Progress = Callable[[Step], None]

PROFILED = 4
"""Questions whose replies are split."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What there is to report, also of a measurement that was interrupted."""

    pair: Pair
    protocol: Protocol
    questions: Sequence[Question]
    left_out: int
    """Tasks that do not fit into the context."""
    arms: Sequence[Arm]
    baseline: str
    costs: Costs
    measurement: Measurement | None
    """None where it was interrupted before the first reply."""
    cells: Sequence[Cell]
    compared: Sequence[Compared]

    @property
    def samples(self) -> Sequence[Sample]:
        """Every reply."""
        return [] if self.measurement is None else self.measurement.samples

    @property
    def ended(self) -> str:
        """Why: all was measured, the time was over, or it was interrupted."""
        return "interrupted" if self.measurement is None else self.measurement.ended


class Experiment:
    """Measures arms on tasks with a pair.

    Args:
        pair: from ``load_pair``.
        tasks: what is asked; those that do not fit into the context are left out.
        arms: their names; the baseline is the first plain one, else the first.
        protocol: how.
        baseline: the name of the arm whose speed is 1; None: as above.
        kv_bits, kernels: of all arms.
        most: longest reply, if it is to be shorter than the tasks' own.
        workshop: makes the arms; None: the usual one.
        meter: running, for joules.
        progress: is told each step.
        began: when the time of the protocol began to run; None: now.

    Raises:
        BadOptionError: an arm cannot be had with this pair, or no task fits.
    """

    def __init__(
        self,
        pair: Pair,
        tasks: Sequence[Task],
        arms: Sequence[str],
        protocol: Protocol,
        *,
        baseline: str | None = None,
        kv_bits: int | None = None,
        kernels: Kernels | str = "auto",
        most: int | None = None,
        workshop: ArmFactory | None = None,
        meter: Meter | None = None,
        progress: Progress = lambda step: None,
        began: float | None = None,
    ) -> None:
        self._began = time.perf_counter() if began is None else began
        names = [ArmName.parse(text) for text in arms]
        if not names:
            raise BadOptionError("there is no arm to measure")
        twice = next((it for it in arms if list(arms).count(it) > 1), None)
        if twice is not None:
            raise BadOptionError(f"the arm {twice} is there twice; call the second one {twice}#2")
        plain = (it.text for it in names if it.method == "off")
        self.baseline = baseline or next(plain, names[0].text)
        if self.baseline not in [it.text for it in names]:
            raise BadOptionError(f"the baseline {self.baseline} is not among the arms")
        self.pair, self.protocol = pair, protocol
        self._names, self._kv_bits, self._kernels = names, kv_bits, kernels
        self._workshop = workshop or ArmFactory(pair, kv_bits, kernels)
        self._meter, self._progress = meter, progress
        self._questions, self.left_out = ready(tasks, pair, most)
        self._costs = Costs()
        self._arms: list[Arm] = []
        self._measurement: Measurement | None = None
        # What cannot be is refused at once, and not after a minute of measuring.
        self._make()

    def run(self) -> None:
        """Measure. What ends it early leaves what was measured until then."""
        try:
            self._prepare()
            energy = None if self._meter is None else EnergyLog(self._meter)
            self._measurement = Measurement(
                self._arms,
                self._questions,
                self.protocol,
                energy=energy,
                progress=self._progress,
                began=self._began,
            )
            for _ in self._measurement.run():
                pass
        finally:
            for arm in self._arms:
                arm.close()

    @property
    def anything(self) -> bool:
        """Whether a reply was measured."""
        return self._measurement is not None and bool(self._measurement.samples)

    def profile(self) -> dict[str, dict[str, Any]]:
        """Where the rounds' time goes, of macspec's own arms, by name and temperature."""
        found: dict[str, dict[str, Any]] = {}
        for temperature in self.protocol.temperatures:
            sampling = replace(self.protocol.sampling, temperature=temperature)
            for arm in self._arms:
                if isinstance(arm, MacspecArm):
                    self._progress(Step(0, 0, None, f"profiling {arm.name}"))
                    split = profile(arm.pair, arm.config, self._questions[:PROFILED], sampling)
                    found.setdefault(arm.name, {})[f"{temperature:g}"] = split.as_dict()
        return found

    def outcome(self) -> Outcome:
        """What was found so far."""
        samples = [] if self._measurement is None else self._measurement.samples
        sampling = self.protocol.sampling
        base = next(it for it in self._names if it.text == self.baseline)
        judge = Judge(
            self.pair,
            self._questions,
            lambda it: replace(
                sampling,
                temperature=it.temperature,
                seed=it.seed if it.temperature > 0 else None,
            ),
            self._kv_bits if base.kv_bits is None else base.kv_bits,
        )
        equals = {it.text: it.keyed for it in self._names if it.kv_bits == base.kv_bits}
        compared = list(compare(samples, self.baseline, equals, judge))
        return Outcome(
            pair=self.pair,
            protocol=self.protocol,
            questions=self._questions,
            left_out=self.left_out,
            arms=self._arms,
            baseline=self.baseline,
            costs=self._costs,
            measurement=self._measurement,
            cells=cells(
                samples,
                self.baseline,
                [it.text for it in self._names],
                costs={it.text: self._costs for it in self._names if it.usual and it.at_once == 1},
                compared=compared,
            ),
            compared=compared,
        )

    def _prepare(self) -> None:
        for number, costs in enumerate(
            measure_costs(self.pair, self._questions, kv_bits=self._kv_bits, kernels=self._kernels),
            1,
        ):
            self._costs = costs
            self._progress(Step(0, 0, None, f"measuring what passes cost, step {number}"))
        if any(question.task.then for question in self._questions):
            self._progress(Step(0, 0, None, "writing what later turns refer to"))
            writer = MacspecArm("", self.pair, DecodeConfig("off", kernels=self._kernels))
            self._questions = with_replies(self._questions, self.pair, writer)
        self._workshop.costs = self._costs
        for arm in self._arms:
            arm.close()
        self._make()

    def _make(self) -> None:
        self._arms = [self._workshop.make(name) for name in self._names]


def usual_arms(pair: Pair, *, quick: bool = False) -> list[str]:
    """Plain, what macspec does by itself, and mlx-lm without and with the draft model.

    Args:
        quick: without looking for mlx-lm's best depth: at the one that it has by itself.
    """
    arms = [PLAIN, "auto"] if quick else [PLAIN, "auto", "auto:keyed"]
    drafting = f"{MLX_LM_DRAFT}@{OWN_DEPTH}" if quick else MLX_LM_DRAFT
    return [*arms, MLX_LM, *([drafting] if pair.draft is not None else [])]
