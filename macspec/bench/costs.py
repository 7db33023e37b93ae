"""What passes and draft steps cost, what that predicts, and what limits an arm."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..control import CostCurve
from ..control.cost import EDGES, GIVEN, READING, SAMPLES
from ..kernels import Kernels
from ..models import Pair
from ..sampling import Sampling
from ..session import Session
from .questions import Question
from .sample import Sample, rows_of

Costs = Mapping[str, Any]
"""Of greedy passes rows, bucket of the context length and cost; ``steps`` and ``reading`` as in
``CostCurve.as_dict``; all in plain steps."""

UNKNOWN: Costs = {"passes": [], "steps": {}, "reading": {}}


def curve_of(costs: Costs) -> CostCurve:
    """A curve of these costs alone; a KeyError, TypeError or ValueError if they are none."""
    curve = CostCurve()
    for name, cost in costs["steps"].items():
        curve.set_parts(name, cost, costs["reading"].get(name, READING * cost))
    for rows, at, cost in costs["passes"]:
        for curve.sampled in (True, False):
            for _ in range(SAMPLES):
                curve.learn(GIVEN, int(rows) - 1, [*EDGES, EDGES[-1] + 1][at], cost)
    return curve


def measure_costs(
    pair: Pair,
    questions: Sequence[Question],
    *,
    kv_bits: int | None = None,
    kernels: Kernels | str = "auto",
) -> Iterator[Costs]:
    """Measure, at each bucket of context lengths that a question falls into.

    After each step all that is known by then is yielded.
    """
    session = Session(pair, kv_bits=kv_bits, kernels=kernels)
    yield UNKNOWN
    by_bucket = {bisect_left(EDGES, len(it.ids)): it for it in reversed(questions)}
    for _, question in sorted(by_bucket.items()):
        session.forget()
        for _ in session.reply(
            question.asked, Sampling(temperature=0), max_tokens=2, raw=question.task.raw
        ):
            pass
        for _ in session.measure(math.inf):
            known = session.controller.curve.as_dict()
            passes = sorted(
                [depth + 1, at, statistics.median(costs)]
                for name, depth, sampled, at, costs in known["rounds"]
                if name == GIVEN and depth and not sampled
            )
            yield {"steps": known["steps"], "reading": known["reading"], "passes": passes}


@dataclass(frozen=True, slots=True)
class Limits:
    """Of an arm, over some replies. Rounds that read a prompt are left out."""

    predicted_speedup: float | None
    """Speed-up that the measured costs give: decoded tokens over the plain steps of the rounds."""
    host_share: float | None
    """Share of decode in which the device waited for the host; None if unknown."""
    tokens_per_round: float
    accepted_per_round: float
    """Drafted tokens that are accepted, in a round that drafts."""
    drafted_per_round: float
    """Of the same rounds."""
    drafting_share: float
    """Of all rounds."""
    verify_steps: float
    """Plain steps of a verify pass, over the rounds that draft."""
    verify_rows: float
    """Rows of such a pass."""
    draft_steps: float
    """Plain steps of drafting in such a round."""

    def sentence(self, measured: float | None) -> str:
        """What limits it, in words; ``measured`` is its speed-up over plain."""
        share, drafted = self.drafting_share, self.drafted_per_round
        if share == 0:
            return "drafted nothing"
        verify = (
            f"verifying {self.verify_rows:.2g} rows costs {self.verify_steps:.2f} plain steps on "
            "this backend"
        )
        if share < 0.1:
            return f"drafted in {share:.0%} of rounds, the rest promised no gain; {verify}"
        plain = 1 - share
        cost = plain + share * (self.verify_steps + self.draft_steps)
        all_accepted, host = plain + share * (drafted + 1), self.host_share or 0.0
        # By how much it would be faster if one thing cost nothing.
        gains = (
            (cost / (plain + share * (1 + self.draft_steps)), verify, "if it cost one"),
            (
                cost / (plain + share * self.verify_steps),
                f"drafting {drafted:.1f} tokens costs {self.draft_steps:.2f} plain steps",
                "if it cost nothing",
            ),
            (
                all_accepted / max(self.tokens_per_round, 1.0),
                f"{self.accepted_per_round:.1f} of {drafted:.1f} drafted tokens are accepted",
                "if all were",
            ),
            (
                1 / max(1 - host, 0.01),
                f"the device waits for the host {host:.0%} of the time",
                "without that",
            ),
        )
        gain, said, instead = max(gains, key=lambda it: it[0])
        if gain < 1.03 or measured is None:  # too slight to be worth a sentence
            return said
        return f"{said}; {instead}: about {measured * gain:.2f}x"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "stood_per_round": self.accepted_per_round}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Limits:
        """What ``as_dict`` gave, in this version or the one before."""
        values = dict(stored)
        values["accepted_per_round"] = values.pop("stood_per_round")
        return cls(**values)


def limits_of(samples: Sequence[Sample], costs: Costs) -> Limits | None:
    """The limits of one arm; None where its passes are not known, or nothing was decoded."""
    if not all(sample.written.counts_passes for sample in samples):
        return None
    curve = curve_of(costs)
    rounds = []
    for sample in samples:
        stats = sample.written.stats
        middle = stats.prompt_tokens + stats.tokens // 2
        for kind, it in sample.written.rounds.items():
            drafter, depth = kind
            rows, draft = rows_of(kind), curve.drafting(drafter or "", depth)
            verify = curve.round(GIVEN if depth else None, rows - 1, middle)
            rounds.append((depth, rows, it.count, it.tokens, verify, draft))
    if not any(count for _, _, count, *_ in rounds):
        return None
    depths, rows, counts, tokens, passes, drafts = np.array(rounds, dtype=float).T
    steps, whole = counts @ (passes + drafts), counts.sum()
    drafting = counts * (depths > 0)
    decode = sum(sample.written.stats.seconds.decode for sample in samples)
    idle = [sample.written.idle_seconds for sample in samples]
    known = None not in idle and decode > 0

    def each(values: npt.NDArray[np.float64]) -> float:
        """The mean of the rounds that draft."""
        return float(drafting @ values / max(drafting.sum(), 1))

    return Limits(
        predicted_speedup=float(tokens.sum() / steps) if costs["passes"] and steps else None,
        host_share=sum(it or 0.0 for it in idle) / decode if known else None,
        tokens_per_round=float(tokens.sum() / whole),
        accepted_per_round=each(tokens / counts - 1),
        drafted_per_round=each(depths),
        drafting_share=float(drafting.sum() / whole),
        verify_steps=each(passes),
        verify_rows=each(rows),
        draft_steps=each(drafts),
    )
