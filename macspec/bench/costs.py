"""What passes and draft steps cost, what that predicts, and what limits an arm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..control import CostCurve
from ..control.cost import bucket
from ..kernels import Kernels
from ..models import Pair
from ..sampling import Sampling
from ..session import Session
from .questions import Question
from .sample import Kind, Rounds, Sample, rows_of


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


SLIGHT = 1.03
"""Gains below this are not worth a sentence."""

IDLE_AUTO = 0.1
"""Share of rounds below which an arm hardly drafts."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of an arm, over some replies. Rounds that read a prompt are left out."""

    predicted: float | None
    """Speed-up that the measured costs give: decoded tokens over the plain steps of the rounds."""
    host: float | None
    """Share of decode in which the device waited for the host; None where nobody knows."""
    tokens: float
    """Tokens a round."""
    stood: float
    """Drafted tokens that stand, in a round that drafts."""
    drafted: float
    """Tokens drafted in a round that drafts."""
    drafting: float
    """Share of rounds that draft."""
    verify: float
    """Plain steps of a verify pass, over the rounds that draft."""
    rows: float
    """Rows of such a pass."""
    draft: float
    """Plain steps of drafting in such a round."""

    def sentence(self, measured: float | None) -> str:
        """What limits it, in words.

        Args:
            measured: the speed-up over plain.
        """
        if self.drafting == 0:
            return "it drafted nothing"
        if self.drafting < IDLE_AUTO:
            said = f"it drafted in {self.drafting:.0%} of the rounds: the rest promised no gain"
            return f"{said}; {self._cost()}"
        gains = self._gains()
        what = max(gains, key=gains.__getitem__)
        said, instead = {
            "verify": (self._cost(), "if it cost one"),
            "draft": (
                f"drafting {self.drafted:.1f} tokens costs {self.draft:.2f} plain steps",
                "if it cost nothing",
            ),
            "drafts": (
                f"of {self.drafted:.1f} drafted tokens {self.stood:.1f} stand",
                "if all did",
            ),
            "host": (
                f"the device waits for the host in {self.host or 0:.0%} of the time",
                "without",
            ),
        }[what]
        if gains[what] < SLIGHT or measured is None:
            return said
        return f"{said}; {instead}: about {measured * gains[what]:.2f}x"

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "predicted_speedup": self.predicted,
            "host_share": self.host,
            "tokens_per_round": self.tokens,
            "stood_per_round": self.stood,
            "drafted_per_round": self.drafted,
            "drafting_share": self.drafting,
            "verify_steps": self.verify,
            "verify_rows": self.rows,
            "draft_steps": self.draft,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Limits:
        """What ``as_dict`` gave."""
        return cls(
            predicted=stored["predicted_speedup"],
            host=stored["host_share"],
            tokens=stored["tokens_per_round"],
            stood=stored["stood_per_round"],
            drafted=stored["drafted_per_round"],
            drafting=stored["drafting_share"],
            verify=stored["verify_steps"],
            rows=stored["verify_rows"],
            draft=stored["draft_steps"],
        )

    def _cost(self) -> str:
        return f"verify at {self.rows:.2g} rows costs {self.verify:.2f} plain steps on this backend"

    def _gains(self) -> dict[str, float]:
        """By how much it would be faster if one thing cost nothing."""
        plain = 1 - self.drafting
        cost = plain + self.drafting * (self.verify + self.draft)
        best = plain + self.drafting * (self.drafted + 1)
        gains = {
            "verify": cost / (plain + self.drafting * (1 + self.draft)),
            "draft": cost / (plain + self.drafting * self.verify),
            "drafts": best / self.tokens if self.tokens else 1.0,
        }
        if self.host is not None:
            gains["host"] = 1 / max(1 - self.host, 0.01)
        return gains


def limits_of(samples: Sequence[Sample], costs: Costs) -> Limits | None:
    """The limits of one arm; None where its passes are not known, or nothing was decoded."""
    curve = costs.curve()
    whole, verify, draft, rows, drafted, stood = Rounds(), 0.0, 0.0, 0, 0, 0
    drafting, steps = 0, 0.0
    decode, idle, known = 0.0, 0.0, True
    for sample in samples:
        stats = sample.written.stats
        length = stats.prompt_tokens + stats.tokens // 2
        if not sample.written.counts_passes:
            return None
        decode += stats.seconds.decode
        known = known and sample.written.idle_seconds is not None
        idle += sample.written.idle_seconds or 0.0
        for kind, it in sample.written.rounds.items():
            drafter, depth = kind
            whole.count += it.count
            whole.tokens += it.tokens
            cost, step = curve.verify(rows_of(kind), length), depth * curve.step(drafter or "")
            steps += it.count * (cost + step)
            if depth:
                drafting += it.count
                drafted += it.count * depth
                rows += it.count * rows_of(kind)
                stood += it.tokens - it.count
                verify += it.count * cost
                draft += it.count * step
    if whole.count == 0:
        return None
    many = max(drafting, 1)
    return Limits(
        predicted=whole.tokens / steps if costs.passes and steps else None,
        host=idle / decode if known and decode > 0 else None,
        tokens=whole.tokens / whole.count,
        stood=stood / many,
        drafted=drafted / many,
        drafting=drafting / whole.count,
        verify=verify / many,
        rows=rows / many,
        draft=draft / many,
    )
