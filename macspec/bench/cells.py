"""What a measurement found: a cell for each group of tasks, temperature and arm."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from .costs import Costs, Limits, limits_of
from .equality import Compared, Equality
from .sample import Sample, tokens_per_pass

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
        return self.low is not None

    def holds(self, value: float) -> bool:
        """Whether the interval contains a value."""
        return self.low is not None and self.high is not None and self.low <= value <= self.high


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


ALL = "all"
"""The group of all tasks that the target wrote."""

FORCED = " (forced)"
"""Behind the name of a group whose replies were recorded ones, decoded along."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm on one group of tasks at one temperature; None where something is not known."""

    group: str
    temperature: float
    arm: str
    replies: int
    tokens: int
    speedup: Ratio | None
    """Decode speed over the baseline's."""
    whole_speedup: Ratio | None
    """Speed of whole replies over the baseline's, prefill and first pass included."""
    decode_tokens_per_s: float | None
    """Median over the replies, as all that follow which are not counts."""
    prefill_tokens_per_s: float | None
    ttft_s: float | None
    itl_ms_median: float | None
    itl_ms_p95: float | None
    tokens_per_pass: float | None
    """Over all replies together, as acceptance."""
    acceptance: float | None
    acceptance_by_position: tuple[float, ...]
    drafted_by_position: tuple[int, ...]
    joules_per_token: float | None
    """Of decode, over the replies that were long enough for it, if most tokens are theirs."""
    equality: Equality
    limits: Limits | None

    @property
    def forced(self) -> bool:
        return self.group.endswith(FORCED)

    @property
    def whole(self) -> bool:
        """Whether it is over all tasks."""
        return self.group in (ALL, ALL + FORCED)

    def as_dict(self) -> dict[str, Any]:
        limits = None if self.limits is None else self.limits.as_dict()
        more = {"forced": self.forced, "equality": self.equality.as_dict(), "limits": limits}
        return {**asdict(self), **more}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Cell:
        """What ``as_dict`` gave.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        made: dict[str, Any] = {
            name: tuple(it) if isinstance(it, list) else it for name, it in stored.items()
        }
        made.pop("forced")
        for name in ("speedup", "whole_speedup"):
            made[name] = Ratio(**stored[name]) if stored.get(name) else None
        count = stored["equality"]
        made["equality"] = Equality(count["compared"], count["equal"], count["near_ties"])
        made["limits"] = made["limits"] and Limits.from_dict(made["limits"])
        return cls(**made)


def cells(
    samples: Sequence[Sample],
    baseline: str,
    arms: Sequence[str],
    *,
    costs: Mapping[str, Costs] | None = None,
    compared: Sequence[Compared] = (),
) -> list[Cell]:
    """The cells of all samples: by temperature, all tasks first, then by workload and arm.

    Args:
        baseline: the arm whose speed is 1.
        arms: their order.
        costs: what passes cost, by arm; the others get no limits.
        compared: replies beside the baseline's.
    """
    forks = {id(it.sample): it.fork for it in compared}
    known = costs or {}
    made = []
    for temperature in sorted({sample.temperature for sample in samples}):
        there = [sample for sample in samples if sample.temperature == temperature]
        for group, members in _groups(there):
            plain = {it.cell: it for it in members if it.arm == baseline}
            for arm in arms:
                own = [it for it in members if it.arm == arm]
                if not own:
                    continue
                equal = Equality.of([forks[id(it)] for it in own if id(it) in forks])
                made.append(_cell(group, own, plain, equal, known.get(arm)))
    return made


def speed_ratio(
    samples: Sequence[Sample], plain: Mapping[Any, Sample], *, whole: bool = False
) -> Ratio | None:
    """Speed over the baseline's, of the replies that both have.

    Args:
        whole: of whole replies, and not of their decode.
    """
    pairs = defaultdict[str, list[tuple[float, float]]](list)
    for sample in samples:
        if (base := plain.get(sample.cell)) is None:
            continue
        mine, theirs = ((it.whole_speed if whole else it.speed) for it in (sample, base))
        if mine is not None and theirs is not None:
            pairs[sample.question].append((mine, theirs))
    return ratio(pairs)


def _groups(samples: Sequence[Sample]) -> Iterator[tuple[str, list[Sample]]]:
    """All tasks, all forced ones, then each workload, where there is more than one of a kind."""
    for end, forced in (("", False), (FORCED, True)):
        members = [sample for sample in samples if sample.forced is forced]
        workloads = dict.fromkeys(sample.workload for sample in members)
        if members:
            yield ALL + end, members
        for workload in workloads:
            yield workload + end, [it for it in members if it.workload == workload]


def _cell(
    group: str,
    samples: Sequence[Sample],
    plain: Mapping[Any, Sample],
    equality: Equality,
    costs: Costs | None,
) -> Cell:
    awake = [sample.written.stats for sample in samples if not sample.slept]
    replies = [sample.written for sample in samples]
    # By position; a chain that ends earlier counts as 0 there.
    drafted = [sum(at) for at in zip_longest(*(it.drafted_at for it in replies), fillvalue=0)]
    accepted = [sum(at) for at in zip_longest(*(it.accepted_at for it in replies), fillvalue=0)]
    return Cell(
        group=group,
        temperature=samples[0].temperature,
        arm=samples[0].arm,
        replies=len(samples),
        tokens=sum(it.stats.tokens for it in replies),
        speedup=speed_ratio(samples, plain),
        whole_speedup=speed_ratio(samples, plain, whole=True),
        decode_tokens_per_s=median(it.decode_tokens_per_s for it in awake),
        prefill_tokens_per_s=median(it.prefill_tokens_per_s for it in awake),
        ttft_s=median(it.ttft_s for it in awake),
        itl_ms_median=median(it.itl_ms_median for it in awake),
        itl_ms_p95=median(it.itl_ms_p95 for it in awake),
        tokens_per_pass=tokens_per_pass(replies),
        acceptance=sum(accepted) / sum(drafted) if sum(drafted) else None,
        acceptance_by_position=tuple(a / d for a, d in zip(accepted, drafted, strict=True)),
        drafted_by_position=tuple(drafted),
        joules_per_token=_joules(samples),
        equality=equality,
        limits=None if costs is None else limits_of(samples, costs),
    )


def _joules(samples: Sequence[Sample]) -> float | None:
    known = [it.energy for it in samples if it.energy is not None and it.energy.joules is not None]
    tokens = sum(energy.tokens for energy in known)
    if tokens == 0 or tokens < sum(it.written.stats.tokens for it in samples) / 2:
        return None
    return sum(energy.joules or 0.0 for energy in known) / tokens
