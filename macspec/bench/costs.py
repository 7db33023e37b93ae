"""What passes and draft steps cost, measured as the engine does when it is idle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..control import CostCurve
from ..control.curve import bucket
from ..kernels import Kernels
from ..models import Pair
from ..sampling import Sampling
from ..session import Session
from .arm import Question
from .sample import Kind, Rounds, rows_of


@dataclass(frozen=True, slots=True)
class Costs:
    """In plain steps: 1 is a pass of one row at the same context length."""

    passes: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """By rows and bucket of context length."""
    steps: Mapping[str, float] = field(default_factory=dict)
    """A step of each drafter that runs a model."""
    reading: Mapping[str, float] = field(default_factory=dict)
    """What such a drafter takes for a token that it reads at once with others."""

    @classmethod
    def of(cls, curve: CostCurve) -> Costs:
        """What a curve has measured."""
        return cls.from_dict(curve.as_dict())

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Costs:
        """What ``as_dict`` gave."""
        passes = {(rows, at): cost for rows, at, cost in stored["passes"]}
        return cls(passes, dict(stored["steps"]), dict(stored["reading"]))

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "passes": [[rows, at, cost] for (rows, at), cost in sorted(self.passes.items())],
            "steps": dict(self.steps),
            "reading": dict(self.reading),
        }

    def as_curve(self) -> dict[str, Any]:
        """As ``CostCurve.restore`` takes it: these costs and nothing learned from rounds."""
        return {**self.as_dict(), "rounds": [], "plain": []}

    def curve(self) -> CostCurve:
        """The same as the controller reads it, with straight lines between what was measured."""
        curve = CostCurve()
        curve.restore(self.as_curve())
        return curve

    def rounds(self, rounds: Mapping[Kind, Rounds], length: int) -> float:
        """Plain steps that so many rounds should take, at a context length."""
        curve = self.curve()
        return sum(
            it.count * (curve.verify(rows_of(kind), length) + kind[1] * curve.step(kind[0] or ""))
            for kind, it in rounds.items()
        )


def measure_costs(
    pair: Pair,
    questions: Sequence[Question],
    *,
    kv_bits: int | None = None,
    kernels: Kernels | str = "auto",
) -> Iterator[Costs]:
    """Measure, at each bucket of context lengths that a question falls into.

    Yields:
        What is known after each step; the last one is all of it.
    """
    session = Session(pair, kv_bits=kv_bits, kernels=kernels)
    yield Costs()
    by_bucket = {bucket(len(question.ids)): question for question in reversed(questions)}
    for _, question in sorted(by_bucket.items()):
        session.forget()
        for _ in session.reply(
            question.asked, Sampling(temperature=0), max_tokens=2, raw=question.task.raw
        ):
            pass
        for _ in session.measure():
            yield Costs.of(session.controller.curve)
