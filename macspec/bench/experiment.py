"""A measurement from its tasks to its cells."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import BadOptionError
from ..kernels import Kernels
from ..models import Pair
from ..power import Meter
from .arm import Arm, Question, ready, with_replies
from .armname import MLX_LM, MLX_LM_DRAFT, PLAIN, ArmName, Workshop
from .costs import Costs, measure_costs
from .energylog import EnergyLog
from .equality import Compared, Judge, compare
from .mlxlm import OWN_DEPTH
from .own import Own
from .profile import profile
from .protocol import Measurement, Protocol, Step
from .report import Cell, cells
from .sample import Sample
from .task import Task
from .way import Way

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
        workshop: Workshop | None = None,
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
        self._workshop = workshop or Workshop(pair, kv_bits, kernels)
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
                if isinstance(arm, Own):
                    self._progress(Step(0, 0, None, f"profiling {arm.name}"))
                    split = profile(arm.pair, arm.way, self._questions[:PROFILED], sampling)
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
            writer = Own("", self.pair, Way("off", kernels=self._kernels))
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
