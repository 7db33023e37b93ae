"""Ratios of two arms, paired by task, with bootstrap intervals.

The ratio of a task is one arm's median over the other's, each over the repeats. The ratio of many
tasks is the geometric mean of theirs: every task counts alike, and swapping the arms inverts it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

LEVEL = 0.95
"""Coverage of the intervals."""

RESAMPLES = 10_000

LEAST_TASKS = 6
"""Tasks from which on an interval speaks of tasks like these, and not of these alone."""

LEAST_REPEATS = 3
LEAST_FREEDOM = 6
"""What an interval over repeats needs, in each task and in all; with less none is given."""

Floats = npt.NDArray[np.float64]

Pairs = Mapping[str, Sequence[tuple[float, float]]]
"""By task, for each repeat: what the one arm did, and what the other did."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as much one arm did as another."""

    value: float
    low: float | None
    """Ends of the interval; None where there is too little to tell."""
    high: float | None
    tasks: int
    pairs: int
    over: str | None
    """What the interval allows for: other ``tasks`` of the kind, or other ``repeats`` of these."""

    @property
    def known(self) -> bool:
        """Whether there is an interval."""
        return self.low is not None

    def holds(self, value: float) -> bool:
        """Whether the interval contains a value."""
        return self.low is not None and self.high is not None and self.low <= value <= self.high

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "tasks": self.tasks,
            "pairs": self.pairs,
            "over": self.over,
        }


def ratio(pairs: Pairs, seed: int = 0) -> Ratio | None:
    """The ratio of two arms over tasks; None without a pair.

    From ``LEAST_TASKS`` tasks on, tasks are drawn anew with all their repeats, and smoothed; with
    fewer, the repeats within each task are drawn anew. Either way the percentiles are those of
    Student's t (Hesterberg 2015, arXiv:1411.5279): else few units give too short an interval.

    Args:
        pairs: positive numbers; a task without any is left out.
        seed: of the resampling.
    """
    tasks = [np.array(given, dtype=float) for given in pairs.values() if given]
    if not tasks:
        return None
    logs = np.array([_log_ratio(task) for task in tasks])
    value = math.exp(float(logs.mean()))
    count = sum(len(task) for task in tasks)
    rng = np.random.default_rng(seed)
    if len(tasks) >= LEAST_TASKS:
        units = len(tasks)
        drawn = rng.integers(0, units, (RESAMPLES, units))
        # A unit drawn anew has less spread than one measured anew; this is what is missing.
        missing = float(logs.std(ddof=1)) / units
        means = logs[drawn].mean(axis=1) + rng.normal(0, missing, RESAMPLES)
        low, high = _interval(means, student(units - 1))
        return Ratio(value, low, high, units, count, "tasks")
    freedom = sum(len(task) - 1 for task in tasks)
    if freedom < LEAST_FREEDOM or min(map(len, tasks)) < LEAST_REPEATS:
        return Ratio(value, None, None, len(tasks), count, None)
    means = np.mean([_again(task, rng) for task in tasks], axis=0)
    repeats = freedom / len(tasks) + 1
    low, high = _interval(means, student(freedom) * math.sqrt(repeats / (repeats - 1)))
    return Ratio(value, low, high, len(tasks), count, "repeats")


def median(values: Iterable[float | None]) -> float | None:
    """The median of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def mean_of_logs(values: Sequence[float]) -> float | None:
    """The geometric mean; None of nothing."""
    return math.exp(statistics.mean(map(math.log, values))) if values else None


def _log_ratio(task: Floats) -> float:
    """Of the medians of [repeats, 2]."""
    one, other = np.median(task, axis=0)
    return math.log(one / other)


def _again(task: Floats, rng: np.random.Generator) -> Floats:
    """The same of ``RESAMPLES`` draws of the repeats, [resamples]."""
    drawn = task[rng.integers(0, len(task), (RESAMPLES, len(task)))]
    medians = np.median(drawn, axis=1)
    logs: Floats = np.log(medians[:, 0] / medians[:, 1])
    return logs


def _interval(means: Floats, wide: float) -> tuple[float, float]:
    """The percentiles of resampled means that are so many standard errors off."""
    share = statistics.NormalDist().cdf(-wide)
    low, high = np.quantile(means, [share, 1 - share])
    return math.exp(low), math.exp(high)


def student(freedom: int, level: float = LEVEL) -> float:
    """The two-sided quantile of Student's t, by its Cornish-Fisher series.

    Within 0.3 % of the true one from 4 degrees of freedom on, at 95 %.
    """
    z = statistics.NormalDist().inv_cdf((1 + level) / 2)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
