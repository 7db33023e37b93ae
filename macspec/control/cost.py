"""What a round costs: a verify pass by rows and context, and what drafting adds."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

BRANCHED = "+"
"""Behind a drafter's name: its chain with one sibling, whose costs and acceptance differ."""

PLAIN_ROUNDS = 15
"""Plain rounds, or means of a run of them, that are remembered."""

NEAR = 0.2
"""Plain rounds tell what one costs now at contexts that are longer or shorter by this share at
most, where `EMPTY` tokens are added to both."""

EMPTY = 512
"""Tokens of context that a pass hardly notices beside the weights."""

ANCHORS = 5
"""Newest plain rounds, at contexts like this one, whose median is a plain step."""

RUN = 4
"""Plain rounds that are clocked together, each launched ahead and with another behind it."""

ALONE = 1.05
"""A plain round by itself over one of a row, until they have been compared: counts for one
comparison."""

COMPARISONS = 9
"""Newest comparisons of the two whose median counts."""

SURE = 2
"""Comparisons with which the median is good enough."""

MOST = 1.5
"""The most that a comparison is believed, so that a hiccup counts little."""


class PlainStep:
    """Seconds of a plain round as of late: in a row of them, each launched ahead of the one before.

    A round by itself takes longer. The device waits for the host before it, and while its pass is
    being built. Where drafting goes on there are no others, so how much longer is learned, too.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque(maxlen=PLAIN_ROUNDS)
        """Context length and seconds."""
        self._run: list[float] = []
        """Seconds of the newest rounds of a row."""
        self._lone: tuple[int, float] | None = None
        """Context length and seconds of a round by itself, if only plain ones followed."""
        self._alone: deque[float] = deque(maxlen=COMPARISONS)
        """Seconds of such a round over those of one of the row after it."""

    @property
    def newest(self) -> float | None:
        """Seconds, where the newest plain round was; None before the first."""
        return self.at(self._seen[-1][0]) if self._seen else None

    def at(self, length: int) -> float | None:
        """The same at this context length; None where none was near it of late."""
        near = [seconds for where, seconds in self._seen if _near(where, length)]
        return statistics.median(near[-ANCHORS:]) if near else None

    @property
    def alone(self) -> float:
        """A round by itself, in plain steps; at least 1."""
        return drawn(ALONE, self._alone, 1.0)

    @property
    def compares(self) -> bool:
        """Whether that is too little known: a row should follow a round by itself."""
        return len(self._alone) < SURE

    def observe(self, length: int, seconds: float, overlaps: int) -> None:
        """A plain round took so many seconds.

        Args:
            overlaps: 1 if it was launched ahead, and 1 if another was behind it. Where both are
                so, only the time of several rounds says what one takes. Where one is, nothing
                does: the first of a row may land as late as the second should, the last at once.
        """
        if overlaps == 0:
            self._seen.append((length, seconds / self.alone))
            self._lone, self._run = (length, seconds), []
        elif overlaps == 2:
            self._run.append(seconds)
        if len(self._run) < RUN:
            return
        mean, self._run = statistics.mean(self._run), []
        self._seen.append((length, mean))
        if self._lone is not None and _near(self._lone[0], length):
            self._alone.append(min(max(self._lone[1] / mean, 1.0), MOST))
        self._lone = None

    def interrupted(self) -> None:
        """A round was not plain."""
        self._lone = None

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"plain": list(self._seen), "alone": list(self._alone)}

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Take over what ``as_dict`` gave; how long a round by itself takes may be missing.

        Raises:
            ValueError, TypeError, KeyError: it is something else.
        """
        seen = [(int(positive(at)), positive(seconds)) for at, seconds in stored["plain"]]
        alone = [positive(ratio) for ratio in stored.get("alone", ())]
        self._seen = deque(seen, maxlen=PLAIN_ROUNDS)
        self._alone = deque(alone, maxlen=COMPARISONS)
        self._run, self._lone = [], None


def _near(a: int, b: int) -> bool:
    """Whether a plain round takes about as long at both context lengths."""
    return abs(math.log((a + EMPTY) / (b + EMPTY))) < NEAR


def drawn(guess: float, seen: Sequence[float], weight: float) -> float:
    """The median of what was seen, drawn towards a guess that counts for so many."""
    if not seen:
        return guess
    return (weight * guess + len(seen) * statistics.median(seen)) / (weight + len(seen))


def positive(value: float) -> float:
    """The value, if it is a cost.

    Raises:
        ValueError: it is not.
    """
    if not 0 < value < float("inf"):
        raise ValueError(f"{value} is no cost")
    return float(value)


ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32)
"""Rows at which a verify pass is measured; between them its cost is a straight line."""

EDGES = (512, 2048, 8192, 32768)
"""Where one bucket of context lengths ends and the next begins."""

SHIPPED: Mapping[int, float] = {
    1: 1.0, 2: 1.25, 3: 1.35, 4: 1.5, 5: 1.7, 6: 1.95, 7: 2.2, 8: 2.5, 12: 3.0, 16: 3.4, 32: 4.5,
}  # fmt: skip
"""Rows to plain steps, where nothing has been measured yet: between the published curves of
quantized models on an M4 Pro and on an M5 Max (`bench/curves.py`)."""

RECENT = 15
"""Rounds of one depth whose median counts."""

LONG = 100
"""Rounds of a drafter, at any depth, whose median counts: so many that the machine was fast in some
and slow in others."""

PRIOR = 2.0
"""Rounds that a cost from parts counts for, beside those of the drafter that really took place."""

OWN = 8.0
"""Rounds that what is known of all depths counts for, beside those of one depth: its rounds of late
may all have been in a slow moment, and then it would not be tried again."""

LEAP = 1.5
"""Most that one round can differ from what was expected of it, so that a hiccup counts little."""

OUT_OF_ORDER = 1.05
"""A pass that costs more than one of more rows by this factor was measured in a bad moment, or is
really dearer: which of the two, only another measurement tells."""

TRIES = 3
"""How often a pass is measured whose cost is out of order; the median counts."""

READING = 0.05
"""Draft steps that a draft model takes for each token that it reads at once, until measured."""


def bucket(length: int) -> int:
    """The context bucket of so many tokens."""
    return bisect_left(EDGES, length)


class CostCurve:
    """Costs in plain steps: 1 is a plain round at the same context length, now.

    Ratios outlast what moves all costs together (heat, another program, a power limit), so rounds
    of long ago can be compared with those of now. They come from three places: the parts measured
    when idle (`set_pass`, `set_step`), the rounds themselves (`observe`), and the shipped curve.

    Args:
        steps: of each drafter that runs a model, its step as a share of the target's, where it has
            not been measured.
    """

    def __init__(self, steps: Mapping[str, float] | None = None) -> None:
        self._shipped_steps = dict(steps or {})
        self._passes: dict[tuple[int, int], tuple[float, ...]] = {}
        """By rows and bucket, each time that it was measured."""
        self._known: dict[int, dict[int, float]] = {}
        self._costs: dict[tuple[str, int], dict[int, float]] = {}
        """What ``_points`` and ``rounds`` last found, until something new is learned."""
        self._steps: dict[str, float] = {}
        self._reading: dict[str, float] = {}
        self._rounds: dict[tuple[str, int], deque[tuple[int, float]]] = {}
        """By drafter and bucket, depth and cost of its rounds."""
        self.plain = PlainStep()

    def missing(self, length: int) -> list[int]:
        """Rows whose pass is to be measured at this context length, or measured once more."""
        at = bucket(length)
        known = self._measured(at)
        doubtful = {
            rows
            for below, above in pairwise(known)
            if known[below] > OUT_OF_ORDER * known[above]
            for rows in (below, above)
            if len(self._passes[rows, at]) < TRIES
        }
        return [rows for rows in ROWS[1:] if rows not in known or rows in doubtful]

    def set_pass(self, rows: int, length: int, cost: float) -> None:
        """A verify pass of so many rows at this context length took so many plain passes."""
        key = rows, bucket(length)
        self._passes[key] = (*self._passes.get(key, ()), positive(cost))[-TRIES:]
        self._known.clear()
        self._costs.clear()

    def set_step(self, drafter: str, cost: float) -> None:
        """A draft step took so many plain passes."""
        self._steps[drafter] = positive(cost)
        self._costs.clear()

    def set_reading(self, drafter: str, cost: float) -> None:
        """A draft model took so many plain passes for each token that it read at once."""
        self._reading[drafter] = positive(cost)

    def verify(self, rows: int, length: int) -> float:
        """A verify pass of so many rows, in plain steps."""
        points = self._points(bucket(length))
        if rows in points:
            return points[rows]
        ranks = list(points)
        at = min(bisect_left(ranks, rows), len(ranks) - 1)  # beyond the last, as steep as before it
        below, above = ranks[at - 1], ranks[at]
        share = (rows - below) / (above - below)
        return points[below] + share * (points[above] - points[below])

    def step(self, drafter: str) -> float:
        """One draft step, in plain steps; 0 for a drafter that looks things up."""
        drafter = drafter.removesuffix(BRANCHED)
        return self._steps.get(drafter, self._shipped_steps.get(drafter, 0.0))

    def round(self, drafter: str | None, depth: int, length: int) -> float:
        """A whole round of a drafter that has nothing to catch up with, in plain steps.

        Args:
            drafter: its name, followed by ``BRANCHED`` where the chain has a sibling.
        """
        if drafter is None or depth == 0:
            return 1.0
        return self.rounds(drafter, (depth,), length)[0]

    def rounds(self, drafter: str, depths: Sequence[int], length: int) -> list[float]:
        """The same of several depths above 0."""
        costs = self._costs.setdefault((drafter, bucket(length)), {})
        if any(depth not in costs for depth in depths):
            off = self._off(drafter, length)
            error = drawn(1.0, [ratio for ratios in off.values() for ratio in ratios], PRIOR)
            for depth in depths:
                own = drawn(error, off.get(depth, [])[-RECENT:], OWN)
                costs[depth] = self._parts(drafter, depth, length) * own
        return [costs[depth] for depth in depths]

    def catching_up(self, drafter: str, behind: int) -> float:
        """What reading committed tokens adds to the first draft step, which reads one anyway."""
        drafter = drafter.removesuffix(BRANCHED)
        each = self._reading.get(drafter, READING * self.step(drafter))
        return each * max(behind - 1, 0)

    def observe(
        self,
        drafter: str | None,
        depth: int,
        length: int,
        seconds: float,
        behind: int = 0,
        overlaps: int = 0,
    ) -> None:
        """A round took so many seconds. One that had much to catch up with is not typical.

        Args:
            overlaps: 1 if it was launched ahead, and 1 if another was behind it.
        """
        if drafter is None or depth == 0:
            alone = self.plain.alone
            self.plain.observe(length, seconds, overlaps)
            if self.plain.alone != alone:
                self._costs.clear()
            return
        self.plain.interrupted()
        unit = self.plain.at(length)
        if unit is None or behind > 4:
            return
        cost = self.round(drafter, depth, length)
        # What moves every round alike moves the unit; the rest is this kind's own.
        ratio = seconds / unit - self.catching_up(drafter, behind)
        ratio = min(max(ratio, cost / LEAP), cost * LEAP)
        kind = drafter, bucket(length)
        self._rounds.setdefault(kind, deque(maxlen=LONG)).append((depth, ratio))
        self._costs.pop(kind, None)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "passes": [
                [rows, at, statistics.median(costs)] for (rows, at), costs in self._passes.items()
            ],
            "steps": self._steps,
            "reading": self._reading,
            "rounds": [
                [drafter, depth, at, statistics.median(cost for d, cost in seen if d == depth)]
                for (drafter, at), seen in self._rounds.items()
                for depth in sorted({depth for depth, _ in seen})
            ],
            **self.plain.as_dict(),
        }

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Take over what ``as_dict`` gave.

        Raises:
            ValueError, TypeError, KeyError: it is something else.
        """
        passes: dict[tuple[int, int], tuple[float, ...]] = {
            (int(rows), int(at)): (positive(value),) for rows, at, value in stored["passes"]
        }
        steps = {str(name): positive(value) for name, value in stored["steps"].items()}
        reading = {str(name): positive(value) for name, value in stored["reading"].items()}
        rounds: dict[tuple[str, int], deque[tuple[int, float]]] = {}
        for name, depth, at, value in stored["rounds"]:
            seen = rounds.setdefault((str(name), int(at)), deque(maxlen=LONG))
            seen.append((int(positive(depth)), positive(value)))
        plain = PlainStep()
        plain.restore(stored)
        self._passes, self._rounds = passes, rounds
        self._steps, self._reading = steps, reading
        self._known.clear()
        self._costs.clear()
        self.plain = plain

    def _points(self, at: int) -> dict[int, float]:
        """Cost by rows, in their order, in a bucket: of its own, the nearest one's, or shipped."""
        if at not in self._known:
            near = sorted(range(len(EDGES) + 1), key=lambda other: abs(other - at))
            measured = (points for other in near if (points := self._measured(other)))
            points = next(measured, dict(SHIPPED))
            points[1] = 1.0
            # A gap in the measured points is filled with the shipped curve's shape.
            for rows in ROWS:
                if rows not in points:
                    low = max(r for r in points if r < rows)
                    points[rows] = points[low] * SHIPPED[rows] / SHIPPED[low]
            self._known[at] = dict(sorted(points.items()))
        return self._known[at]

    def _measured(self, at: int) -> dict[int, float]:
        """Cost by rows, in their order, of what was measured in this very bucket."""
        found = ((rows, costs) for (rows, where), costs in self._passes.items() if where == at)
        return {rows: statistics.median(costs) for rows, costs in sorted(found)}

    def _parts(self, drafter: str, depth: int, length: int) -> float:
        rows = depth + 1 + drafter.endswith(BRANCHED)
        waiting = self.plain.alone - 1  # as a plain round by itself: it is never launched ahead
        return self.verify(rows, length) + depth * self.step(drafter) + waiting

    def _off(self, drafter: str, length: int) -> dict[int, list[float]]:
        """By depth, what rounds took over their cost from parts."""
        costs: dict[int, list[float]] = {}
        for depth, cost in self._rounds.get((drafter, bucket(length)), ()):
            costs.setdefault(depth, []).append(cost)
        parts = {depth: self._parts(drafter, depth, length) for depth in costs}
        return {depth: [cost / parts[depth] for cost in seen] for depth, seen in costs.items()}


@cache
def candidates(room: int) -> tuple[int, ...]:
    """Depths worth thinking about: those that fill a pass of measured rows, and the room."""
    depths = [rows - 1 for rows in ROWS if 1 < rows <= room + 1]
    return tuple(depths if not depths or depths[-1] == room else [*depths, room])
