"""What a round costs, in plain steps: measured as whole rounds when idle, refined by live ones."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from ..choices import BLOCKS
from .state import PARAMETERS

BRANCHED = "+"
"""Behind a drafter's name: its chain with one sibling, whose acceptance differs."""

GIVEN = ""
"""Stands for all lookups: drafting costs nothing."""

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32)
"""Rows of the passes that are considered and measured."""

SAMPLES = 5
"""Idle measurements of a kind of round at which it is known well enough."""

NEWEST = 3 * SAMPLES
"""Comparisons of which the median is what a kind of round costs: live ones take over slowly."""

STALE = 100
"""Drafted rounds in a row after which a plain step is timed again."""

MODEL_DEPTHS = dict.fromkeys((1, 2, 3, 4), 2 * SAMPLES) | dict.fromkeys((5, 7), SAMPLES)
"""Depths at which a model's rounds are measured, and how often: shallow ones compete closely."""

EDGES = (512, 2048, 8192, 32768)
"""Borders between the buckets of context lengths."""

SHIPPED: Mapping[int, float] = {
    1: 1.0, 2: 1.25, 3: 1.35, 4: 1.5, 5: 1.7, 6: 1.95, 7: 2.2, 8: 2.5, 12: 3.0, 16: 3.4, 32: 4.5,
    64: 6.7,
}  # fmt: skip
"""Rows to plain steps until measured: between the published curves of an M4 Pro and an M5 Max."""

READING = 0.05
"""Cost of reading one token into a draft model, in draft steps, until measured."""

ALONE = 1.03
"""A plain round that the device has to wait for, over one launched ahead, until measured."""

Where = tuple[bool, int]
"""Whether tokens are sampled, and the bucket of the context length."""

Kind = tuple[str, int]
"""A drafter, with ``BRANCHED`` behind it where its chain has a branch, and a depth."""


class CostCurve:
    """Costs relative to one pipelined plain-decoding step at the same context length.

    Ratios survive whatever moves all costs together (heat, another program, a power limit). The
    cost of a kind of round is the median of its newest comparisons with plain steps, idle or live,
    between two that took alike. Kinds without any are added up from parts (a pass of their rows,
    their draft steps), times a factor interpolated between depths that were compared.

    Args:
        steps: of each drafter that runs a model, in plain steps, until it is measured.
    """

    def __init__(self, steps: Mapping[str, float] | None = None) -> None:
        self.sampled = False
        """Whether rounds sample now; sampled ones cost more."""
        self._steps = dict(steps or {})
        self.reading: dict[str, float] = {}  # a token into a model, where that was measured
        self._seen: dict[tuple[str, Where], dict[int, list[float]]] = {}
        """Costs of rounds, by depth; at depth 0 of plain ones that were not launched ahead."""
        self._replays: list[float] = []
        self._factors: dict[tuple[str, Where], dict[int, float]] = {}
        self._costs: dict[tuple[str, int, Where], float] = {}
        self._mosts: dict[tuple[str, int, Where], float] = {}  # all cached until more is learned
        self._plain: deque[tuple[int, float]] = deque(maxlen=NEWEST)  # length and seconds
        self._run: list[float] = []  # seconds of the newest rounds of a pipelined run
        self.left: list[float] = []  # seconds of leaving a pipelined run: last round, first drafted
        self._leaving: deque[float] = deque(maxlen=NEWEST)  # what that added, in plain steps
        self._waits: deque[float] = deque(maxlen=NEWEST)
        self._waiting = 0.0
        """Plain steps that the device waits for the host before a round of a reply: the median."""
        self.pending: list[tuple[Kind, float, bool]] = []
        """Drafted rounds since the newest plain one: seconds, and whether begun with a replay."""

    def step(self, drafter: str) -> float:
        """One pass of a drafter's model, in plain steps; 0 for a lookup."""
        return self._steps.get(drafter.removesuffix(BRANCHED), 0.0)

    def drafting(self, drafter: str, depth: int) -> float:
        """Drafting that many tokens, in plain steps; some drafters do it in one pass."""
        return self.step(drafter) * (1 if drafter in BLOCKS else depth)

    def round(self, drafter: str | None, depth: int, length: int) -> float:
        """A round of a drafter (with ``BRANCHED``: branched) that has read all, in plain steps."""
        if drafter is None or (drafter and depth == 0):
            return 1.0
        return self._cost(self._name(drafter), depth, self._where(length)) + self._waiting

    def most(self, drafter: str, depth: int, length: int) -> float:
        """The same at most: a token beyond the measured ones takes no longer than a plain step."""
        name, where = self._name(drafter), self._where(length)
        if (name, depth, where) not in self._mosts:
            known = max([0, *self._near(name, where), *self._near(GIVEN, where)])
            cost, sure = self._cost(name, depth, where), self._cost(name, known, where)
            most = cost if depth <= known else max(cost, (sure if known else 1.0) + depth - known)
            self._mosts[name, depth, where] = most
        return self._mosts[name, depth, where] + self._waiting

    def catching_up(self, drafter: str, unread: int) -> float:
        """What reading committed tokens adds to the first draft step, which reads one anyway."""
        return self.reading.get(drafter, READING * self.step(drafter)) * max(unread - 1, 0)

    def leaving(self, length: int) -> float:
        """What it adds that a pipelined run of plain steps is left for a round and begun again."""
        lone = self._cost(GIVEN, 0, self._where(length)) - 1
        return max(statistics.median([lone, lone, *self._leaving]), 0.0)

    @property
    def replay(self) -> float:
        """What a partial accept adds, in plain steps, where the next round begins with a replay."""
        return statistics.median(self._replays) if self._replays else 0.0

    def seconds(self, length: int) -> float | None:
        """A pipelined plain step near this length (512 stand for the weights), if one was timed."""
        near = [it for at, it in self._plain if alike(at + 512, length + 512)]
        return statistics.median(near[-5:]) if near else None

    def asks_for_plain(self, length: int) -> bool:
        """Whether a plain step would tell a cost that is unknown or old: its own, or a round's."""
        replays = len(self._replays) < SAMPLES and any(it[2] for it in self.pending[1:])
        kind = self._name(self.pending[-1][0][0] if self.pending else GIVEN)
        known = self._near(kind, self._where(length)) and self.seconds(length)
        return replays or len(self.pending) > (STALE if known else SAMPLES)

    def missing(self, length: int, models: Sequence[str] = ()) -> list[Kind]:
        """Kinds of rounds to measure here: those of few samples and little depth first."""
        wanted = {(name, depth): most for name in models for depth, most in MODEL_DEPTHS.items()}
        wanted |= {(GIVEN, rows - 1): SAMPLES for rows in ROWS}
        seen, where = self._seen, self._where(length)
        counts = {(name, at): len(seen.get((name, where), {}).get(at, ())) for name, at in wanted}
        missing = [it for it in wanted if counts[it] < wanted[it]]
        return sorted(missing, key=lambda it: counts[it] + it[1] / 8)

    def learn(self, drafter: str, depth: int, length: int, cost: float, *before: float) -> None:
        """A round, or the median of a few, took so many plain steps; at depth 0 a plain one that
        was not launched ahead. ``before``: what stands beside it while nothing is known."""
        kinds = self._seen.setdefault((drafter, self._where(length)), {})
        kinds[depth] = [*kinds.get(depth, before), positive(cost)][-NEWEST:]
        self._forget()

    def set_parts(self, drafter: str, step: float, reading: float) -> None:
        """Record the costs of a draft step and of reading one token, in plain steps."""
        self._steps[drafter], self.reading[drafter] = positive(step), positive(reading)
        self._forget()

    def set_plain(self, length: int, seconds: float) -> None:
        """A pipelined plain step took so many seconds. Rounds since the last one are compared with
        both if these took alike; else the machine changed, nobody knows when."""
        before = self.seconds(length) or seconds
        self._plain.append((length, positive(seconds)))
        pending, self.pending = self.pending, []
        if alike(before, seconds):
            self._compare(pending, length, (before + seconds) / 2)

    def observe(
        self,
        drafter: str | None,
        depth: int,
        length: int,
        seconds: float,
        overlaps: int = 0,
        replayed: bool = False,
        waited: float = 0.0,
    ) -> None:
        """A round took so many seconds.

        Args:
            overlaps: 1 if launched ahead, plus 1 if the next was: 1 tells nothing, 2 a mean only.
            replayed: it began with the replay of rows that the round before kept.
            waited: seconds before the device had any work for it, among those.
        """
        if (seconds := seconds - waited) <= 0:
            return
        where, plain = self._where(length), None if overlaps == 2 else self.seconds(length)
        if drafter is not None and depth > 0:
            self._run = []
            self.pending.append(((drafter, depth), seconds, replayed))
            if plain:
                self._waits.append(waited / plain)
                self._waiting = statistics.median(self._waits)
                if len(self.left) == 1:
                    usual = self._cost(self._name(drafter), depth, where)
                    self.left.append(seconds - plain * usual)
        elif overlaps == 1:
            if len(self.left) == 2 and plain:
                self._leaving.append((sum(self.left) + seconds + waited) / plain - 2)
            self.left = [seconds] if len(self.left) < 2 else []
        elif overlaps == 2:
            self._run.append(seconds)
            if len(self._run) == 4:
                mean, self._run = statistics.mean(self._run), []
                self.set_plain(length, mean)
        elif not replayed:  # a replay's cost is known by plain steps alone
            self._run = []
            self.set_plain(length, seconds / max(self._cost(GIVEN, 0, where), 1.0))

    def as_dict(self) -> dict[str, Any]:
        rounds = [
            [name, depth, *where, costs]
            for (name, where), kinds in self._seen.items()
            for depth, costs in kinds.items()
        ]
        parts = {"steps": self._steps, "reading": self.reading}
        return {**parts, "rounds": rounds, "replays": self._replays}

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Take over what ``as_dict`` gave; else a ValueError, TypeError or KeyError."""
        seen: dict[tuple[str, Where], dict[int, list[float]]] = {}
        for name, depth, sampled, at, costs in stored["rounds"]:
            if not (0 <= int(depth) <= ROWS[-1] and 0 <= int(at) <= len(EDGES) and costs):
                raise ValueError(f"no costs {costs} of depth {depth} in bucket {at}")
            kinds = seen.setdefault((str(name), (bool(sampled), int(at))), {})
            kinds[int(depth)] = [*map(positive, costs)][-NEWEST:]
        steps = {str(name): positive(cost) for name, cost in stored["steps"].items()}
        reading = {str(name): positive(cost) for name, cost in stored["reading"].items()}
        self._seen, self._replays = seen, [*map(positive, stored["replays"])][-NEWEST:]
        self._steps, self.reading = self._steps | steps, self.reading | reading
        self._run, self.pending, self._plain = [], [], deque(maxlen=NEWEST)
        self._forget()

    def _forget(self) -> None:
        for cached in (self._factors, self._costs, self._mosts):
            cached.clear()

    def _name(self, drafter: str) -> str:
        return drafter if self.step(drafter) else GIVEN

    def _where(self, length: int) -> Where:
        return self.sampled, bisect_left(EDGES, length)

    def _cost(self, name: str, depth: int, where: Where) -> float:
        """A round in these conditions: its parts, times how rounds near it compare with theirs."""
        if (name, depth, where) not in self._costs:
            factor = _line(self._near(name, where) or {depth: 1.0}, depth)
            self._costs[name, depth, where] = factor * self._parts(name, depth, where)
        return self._costs[name, depth, where]

    def _parts(self, name: str, depth: int, where: Where) -> float:
        """The cost of a round before its factor."""
        if name == GIVEN:
            return _line(SHIPPED, depth + 1) if depth else ALONE
        verify = self._cost(GIVEN, depth, where)
        if name.endswith(BRANCHED):
            more = self._cost(GIVEN, depth + 1, where) - verify
            return self._cost(name.removesuffix(BRANCHED), depth, where) + max(more, 0.0)
        return verify + self.drafting(name, depth)

    def _near(self, name: str, where: Where) -> Mapping[int, float]:
        """By depth, what rounds cost over their parts, in these or the most similar conditions."""
        if (name, where) not in self._factors:
            known = [at for kind, at in self._seen if kind == name]
            sampled, at = where
            best = min(known, key=lambda it: (abs(it[1] - at), it[0] != sampled), default=where)
            self._factors[name, where] = {
                depth: statistics.median(costs) / self._parts(name, depth, best)
                for depth, costs in self._seen.get((name, best), {}).items()
            }
        return self._factors[name, where]

    def _compare(
        self, pending: Sequence[tuple[Kind, float, bool]], length: int, unit: float
    ) -> None:
        """Learn from rounds in a row, beside plain steps of so many seconds; the first of them
        counts only where nothing else is known, as leaving a pipelined run takes its time."""
        seen: dict[tuple[Kind, bool], list[float]] = {}
        where = self._where(length)
        for number, ((drafter, depth), seconds, replayed) in enumerate(pending):
            name = self._name(drafter)
            if number or not self._near(name, where):
                seen.setdefault(((name, depth), replayed), []).append(seconds / unit)
        for ((name, depth), replayed), ratios in seen.items():
            found, believed = statistics.median(ratios), self._cost(name, depth, where)
            if replayed:  # beside what the others have taken
                self._replays = [*self._replays, max(found - believed, 1e-6)][-NEWEST:]
            else:
                # Two of what its neighbours say, so that one odd comparison decides nothing.
                before = [believed] * 2 if self._near(name, where) else []
                self.learn(name, depth, length, found, *before)


def _line(points: Mapping[int, float], at: int) -> float:
    """The value at a place, in a line between its neighbours, flat beyond the outer ones."""
    below = max((it for it in points if it <= at), default=min(points))
    above = min((it for it in points if it >= at), default=max(points))
    share = (at - below) / max(above - below, 1)
    return points[below] + share * (points[above] - points[below])


def alike(one: float, other: float) -> bool:
    """Whether two times of a plain step, or two context lengths, differ too little to matter."""
    return max(one, other) < PARAMETERS.alike * min(one, other)


def positive(value: float) -> float:
    """The value; a ValueError if it is no cost."""
    if not 1e-12 <= value <= 1e12:
        raise ValueError(f"{value} is no cost")
    return float(value)


@cache
def candidates(room: int) -> tuple[int, ...]:
    """Depths to consider: those that fill a pass of measured rows, and the room."""
    depths = [rows - 1 for rows in ROWS if 1 < rows <= room + 1]
    return tuple(depths if not depths or depths[-1] == room else [*depths, room])
