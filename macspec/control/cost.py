"""What a round costs: a verify pass by rows and context, and what drafting adds."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

BRANCHED = "+"
"""Behind a drafter's name: its chain with one sibling, whose costs and acceptance differ."""

PLAIN_ROUNDS = 15
"""Plain rounds, or means of a pipelined run of them, that are remembered."""

NEAR = 0.2
"""Contexts closer than this, as the logarithm of their ratio after adding ``EMPTY``, cost alike."""

EMPTY = 512
"""Tokens of context whose cost is negligible beside the weights."""

ANCHORS = 5
"""Newest plain rounds at similar contexts, whose median is a plain step."""

RUN = 4
"""Pipelined plain rounds that are timed together."""

UNPIPELINED = 1.05
"""An unpipelined plain round over a pipelined one, until compared; weighs like one comparison."""

COMPARISONS = 9
"""Newest comparisons of the two whose median counts."""

SURE = 2
"""Comparisons after which the median is good enough."""

MOST = 1.5
"""Upper bound of a comparison, so that a hiccup counts little."""


class PlainStep:
    """Recent seconds of a plain step: a pipelined round, launched before the one ahead has ended.

    An unpipelined round takes longer, as the device waits for the host. Between drafted rounds
    there are no others, so the ratio is learned too.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque(maxlen=PLAIN_ROUNDS)
        """Context length and seconds."""
        self._own = 0
        """How many of the last ones were not restored."""
        self._run: list[float] = []
        """Seconds of the newest rounds of a pipelined run."""
        self._single: tuple[int, float] | None = None
        """Context length and seconds of an unpipelined round, if only plain ones followed."""
        self._ratios: deque[float] = deque(maxlen=COMPARISONS)
        """Unpipelined over pipelined seconds, for each comparison."""

    @property
    def newest(self) -> float | None:
        """Seconds at the context length of the newest plain round; None before the first."""
        return self.at(self._seen[-1][0]) if self._seen else None

    def at(self, length: int) -> float | None:
        """Seconds at this context length; None without recent rounds near it."""
        return _seconds_at(length, self._seen)

    def measured(self, length: int) -> float | None:
        """As ``at``, by this session's rounds only: earlier ones may be of a machine in another
        state."""
        return _seconds_at(length, list(self._seen)[len(self._seen) - self._own :])

    @property
    def unpipelined(self) -> float:
        """An unpipelined round, in plain steps; at least 1."""
        return drawn(UNPIPELINED, self._ratios, 1.0)

    @property
    def needs_comparison(self) -> bool:
        """Whether a pipelined run should follow the next unpipelined round, to compare the two."""
        return len(self._ratios) < SURE

    def observe(self, length: int, seconds: float, overlaps: int) -> None:
        """A plain round took so many seconds.

        Args:
            overlaps: 1 if it was itself prefetched, plus 1 if the next one was. At 2, only the
                mean of several rounds is meaningful, at 1 nothing.
        """
        if overlaps == 0:
            self._add(length, seconds / self.unpipelined)
            self._single, self._run = (length, seconds), []
        elif overlaps == 2:
            self._run.append(seconds)
        if len(self._run) < RUN:
            return
        mean, self._run = statistics.mean(self._run), []
        self._add(length, mean)
        if self._single is not None and _near(self._single[0], length):
            self._ratios.append(min(max(self._single[1] / mean, 1.0), MOST))
        self._single = None

    def interrupted(self) -> None:
        self._single = None

    def _add(self, length: int, seconds: float) -> None:
        self._seen.append((length, seconds))
        self._own = min(self._own + 1, PLAIN_ROUNDS)

    def as_dict(self) -> dict[str, Any]:
        return {"plain": list(self._seen), "alone": list(self._ratios)}

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Take over what ``as_dict`` gave; else a ValueError, TypeError or KeyError."""
        seen = [(int(positive(at)), positive(seconds)) for at, seconds in stored["plain"]]
        unpipelined = [positive(ratio) for ratio in stored.get("alone", ())]
        self._seen, self._own = deque(seen, maxlen=PLAIN_ROUNDS), 0
        self._ratios = deque(unpipelined, maxlen=COMPARISONS)
        self._run, self._single = [], None


def _seconds_at(length: int, seen: Iterable[tuple[int, float]]) -> float | None:
    """The median of the newest rounds near a context length."""
    near = [seconds for where, seconds in seen if _near(where, length)]
    return statistics.median(near[-ANCHORS:]) if near else None


def _near(a: int, b: int) -> bool:
    return abs(math.log((a + EMPTY) / (b + EMPTY))) < NEAR


def drawn(guess: float, seen: Sequence[float], weight: float) -> float:
    """The median of what was seen, shrunk towards a guess of this weight."""
    if not seen:
        return guess
    return (weight * guess + len(seen) * statistics.median(seen)) / (weight + len(seen))


SMALLEST = 1e-12
"""Of a cost; its reciprocal is the largest."""


def positive(value: float) -> float:
    """The value; a ValueError if it is no cost."""
    if not SMALLEST <= value <= 1 / SMALLEST:
        raise ValueError(f"{value} is no cost")
    return float(value)


ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32)
"""Rows at which a verify pass is measured; between them its cost is interpolated."""

EDGES = (512, 2048, 8192, 32768)
"""Borders between the buckets of context lengths."""

SHIPPED: Mapping[int, float] = {
    1: 1.0, 2: 1.25, 3: 1.35, 4: 1.5, 5: 1.7, 6: 1.95, 7: 2.2, 8: 2.5, 12: 3.0, 16: 3.4, 32: 4.5,
}  # fmt: skip
"""Rows to plain steps, used until measured: between the published curves of
quantized models on an M4 Pro and on an M5 Max (`bench/curves.py`)."""

RECENT = 15
"""Rounds of one depth whose median counts."""

LONG = 100
"""Rounds of a drafter, at any depth, whose median counts: enough to span fast and slow moments."""

PRIOR = 2.0
"""Weight, in rounds, of a cost added up from parts, beside the drafter's measured rounds."""

OWN = 8.0
"""Weight, in rounds, of what is known of all depths, beside those of one depth, whose recent rounds
may all have met a slow moment."""

LEAP = 1.5
"""Most by which one round may differ from its expected cost, so that a hiccup counts little."""

OUT_OF_ORDER = 1.05
"""A pass that costs this factor more than one of more rows is measured again."""

TRIES = 3
"""How often a pass with a cost out of order is measured; the median counts."""

READING = 0.05
"""Cost of reading one token into a draft model, in draft steps, until measured."""


def bucket(length: int) -> int:
    return bisect_left(EDGES, length)


class CostCurve:
    """Costs relative to one pipelined plain-decoding step at the same context length.

    Ratios survive whatever moves all costs together (heat, another program, a power limit). They
    come from the parts measured when idle (`set_pass`, `set_step`), from the rounds themselves
    (`observe`), and from the shipped curve.

    Args:
        steps: of each drafter that runs a model, its step as a share of the target's, where it has
            not been measured.
    """

    def __init__(self, steps: Mapping[str, float] | None = None) -> None:
        self._shipped_steps = dict(steps or {})
        self._passes: dict[tuple[int, int], tuple[float, ...]] = {}
        """Measurements by rows and bucket."""
        self._known: dict[int, dict[int, float]] = {}
        self._costs: dict[tuple[str, int], dict[int, float]] = {}
        """Cached results of ``_points`` and ``rounds``, until something new is learned."""
        self._steps: dict[str, float] = {}
        self._reading: dict[str, float] = {}
        self._rounds: dict[tuple[str, int], deque[tuple[int, float]]] = {}
        """Depth and cost of the rounds, by drafter and bucket."""
        self._replays: deque[float] = deque(maxlen=LONG)
        """By how much rounds that began with a replay exceeded the one before that did not."""
        self._without: dict[tuple[str, int, int], float] = {}
        """The newest round without a replay, by drafter, bucket and depth."""
        self.plain = PlainStep()

    def missing(self, length: int) -> list[int]:
        """Rows whose pass should be measured, or measured again, at this context length."""
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
        """Record the cost of a verify pass in plain passes."""
        key = rows, bucket(length)
        self._passes[key] = (*self._passes.get(key, ()), positive(cost))[-TRIES:]
        self._known.clear()
        self._costs.clear()

    def set_step(self, drafter: str, cost: float) -> None:
        """Record the cost of a draft step in plain passes."""
        self._steps[drafter] = positive(cost)
        self._costs.clear()

    def set_reading(self, drafter: str, cost: float) -> None:
        """Record the cost, in plain passes, of reading one token into a draft model."""
        self._reading[drafter] = positive(cost)

    def verify(self, rows: int, length: int) -> float:
        """A verify pass, in plain steps."""
        points = self._points(bucket(length))
        if rows in points:
            return points[rows]
        ranks = list(points)
        at = min(bisect_left(ranks, rows), len(ranks) - 1)  # beyond the last, as steep as before it
        below, above = ranks[at - 1], ranks[at]
        share = (rows - below) / (above - below)
        return points[below] + share * (points[above] - points[below])

    def step(self, drafter: str) -> float:
        """One draft step, in plain steps; 0 for a look-up."""
        drafter = drafter.removesuffix(BRANCHED)
        return self._steps.get(drafter, self._shipped_steps.get(drafter, 0.0))

    def round(self, drafter: str | None, depth: int, length: int) -> float:
        """A whole round of a drafter that has read everything, in plain steps."""
        if drafter is None or depth == 0:
            return 1.0
        return self.rounds(drafter, (depth,), length)[0]

    def rounds(self, drafter: str, depths: Sequence[int], length: int) -> list[float]:
        """The same for several depths above 0; ``BRANCHED`` follows the name of a branched one."""
        costs = self._costs.setdefault((drafter, bucket(length)), {})
        if any(depth not in costs for depth in depths):
            off = self._off(drafter, length)
            error = drawn(1.0, [ratio for ratios in off.values() for ratio in ratios], PRIOR)
            for depth in depths:
                own = drawn(error, off.get(depth, [])[-RECENT:], OWN)
                costs[depth] = self._parts(drafter, depth, length) * own
        return [costs[depth] for depth in depths]

    @property
    def replay(self) -> float:
        """What a partial accept adds, in plain steps, where rows are taken back by replay; the
        device does it at the beginning of the next round."""
        return max(drawn(0.0, self._replays, PRIOR), 0.0)

    def catching_up(self, drafter: str, unread: int) -> float:
        """What reading committed tokens adds to the first draft step, which reads one anyway."""
        drafter = drafter.removesuffix(BRANCHED)
        each = self._reading.get(drafter, READING * self.step(drafter))
        return each * max(unread - 1, 0)

    def observe(
        self,
        drafter: str | None,
        depth: int,
        length: int,
        seconds: float,
        unread: int = 0,
        overlaps: int = 0,
        replayed: bool = False,
    ) -> None:
        """A round took so many seconds; one with much unread text is not typical and ignored.

        Args:
            overlaps: 1 if it was itself prefetched, plus 1 if the next one was.
            replayed: it began with the replay of rows that the round before kept.
        """
        if drafter is None or depth == 0:
            unpipelined = self.plain.unpipelined
            self.plain.observe(length, seconds / (1 + self.replay * replayed), overlaps)
            if self.plain.unpipelined != unpipelined:
                self._costs.clear()
            return
        self.plain.interrupted()
        unit = self.plain.at(length)
        if unit is None or unread > 4:
            return
        cost = self.round(drafter, depth, length)
        # What moves every round alike moves the unit; the rest is particular to this kind.
        ratio = seconds / unit - self.catching_up(drafter, unread)
        ratio = min(max(ratio, cost / LEAP), cost * LEAP)
        kind = drafter, bucket(length)
        if not replayed:
            self._without[*kind, depth] = ratio
        elif (*kind, depth) in self._without:
            self._replays.append(ratio - self._without[*kind, depth])
        ratio -= self.replay * replayed
        self._rounds.setdefault(kind, deque(maxlen=LONG)).append((depth, ratio))
        self._costs.pop(kind, None)

    def as_dict(self) -> dict[str, Any]:
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
            "replays": list(self._replays),
            **self.plain.as_dict(),
        }

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Take over what ``as_dict`` gave; else a ValueError, TypeError or KeyError."""
        passes: dict[tuple[int, int], tuple[float, ...]] = {
            (int(rows), int(at)): (positive(value),)
            for rows, at, value in stored["passes"]
            if 0 < rows <= ROWS[-1]
        }
        steps = {str(name): positive(value) for name, value in stored["steps"].items()}
        reading = {str(name): positive(value) for name, value in stored["reading"].items()}
        rounds: dict[tuple[str, int], deque[tuple[int, float]]] = {}
        for name, depth, at, value in stored["rounds"]:
            seen = rounds.setdefault((str(name), int(at)), deque(maxlen=LONG))
            seen.append((int(positive(depth)), positive(value)))
        replays = [float(value) for value in stored.get("replays", ())]
        if not all(map(math.isfinite, replays)):
            raise ValueError(f"{replays} are no costs")
        plain = PlainStep()
        plain.restore(stored)
        self._passes, self._rounds = passes, rounds
        self._replays = deque(replays, maxlen=LONG)
        self._steps, self._reading = steps, reading
        self._known.clear()
        self._costs.clear()
        self.plain = plain

    def _points(self, at: int) -> dict[int, float]:
        """Cost by ascending rows in a bucket: its own, the nearest bucket's, or the shipped one."""
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
        """Cost by ascending rows, measured in this bucket."""
        found = ((rows, costs) for (rows, where), costs in self._passes.items() if where == at)
        return {rows: statistics.median(costs) for rows, costs in sorted(found)}

    def _parts(self, drafter: str, depth: int, length: int) -> float:
        rows = depth + 1 + drafter.endswith(BRANCHED)
        waiting = self.plain.unpipelined - 1  # a drafted round is never prefetched
        return self.verify(rows, length) + depth * self.step(drafter) + waiting

    def _off(self, drafter: str, length: int) -> dict[int, list[float]]:
        """By depth, the cost of rounds over their cost from parts."""
        costs: dict[int, list[float]] = {}
        for depth, cost in self._rounds.get((drafter, bucket(length)), ()):
            costs.setdefault(depth, []).append(cost)
        parts = {depth: self._parts(drafter, depth, length) for depth in costs}
        return {depth: [cost / parts[depth] for cost in seen] for depth, seen in costs.items()}


@cache
def candidates(room: int) -> tuple[int, ...]:
    """Depths to consider: those that fill a pass of measured rows, and the room."""
    depths = [rows - 1 for rows in ROWS if 1 < rows <= room + 1]
    return tuple(depths if not depths or depths[-1] == room else [*depths, room])
