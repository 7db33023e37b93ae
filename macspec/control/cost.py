"""What a round costs, in plain steps: measured as whole rounds when idle, refined by live ones."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from ..choices import BLOCKS
from .parameters import PARAMETERS

BRANCHED = "+"
"""Behind a drafter's name: its chain with one sibling, whose acceptance differs."""

GIVEN = ""
"""Stands for all lookups: drafting costs nothing."""

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32)
"""Rows of the passes that are considered and measured."""

MODEL_DEPTHS = (1, 2, 3, 5, 7)
"""Depths at which rounds of a drafter with a model are measured."""

EDGES = (512, 2048, 8192, 32768)
"""Borders between the buckets of context lengths."""

SHIPPED: Mapping[int, float] = {
    1: 1.0, 2: 1.25, 3: 1.35, 4: 1.5, 5: 1.7, 6: 1.95, 7: 2.2, 8: 2.5, 12: 3.0, 16: 3.4, 32: 4.5,
}  # fmt: skip
"""Rows to plain steps, used until measured: between the published curves of
quantized models on an M4 Pro and on an M5 Max (`bench simulate`)."""

READING = 0.05
"""Cost of reading one token into a draft model, in draft steps, until measured."""

ALONE = 1.03
"""A plain round that the device has to wait for, over one launched ahead, until measured."""

NEAR = 1.2
"""Contexts whose lengths, plus 512 for the weights, differ less than this cost alike."""

SAMPLES = 3
"""Measurements of a kind of round, of which the median counts."""

Where = tuple[bool, int]
"""Whether tokens are sampled, and the bucket of the context length."""

Point = tuple[float, float]
"""A cost over the one expected from parts, and how many comparisons it rests on."""


def bucket(length: int) -> int:
    return bisect_left(EDGES, length)


class CostCurve:
    """Costs relative to one pipelined plain-decoding step at the same context length.

    Ratios survive whatever moves all costs together (heat, another program, a power limit). A
    round's cost is added up from parts (a pass of its rows, its draft steps) and multiplied by a
    factor, which is measured at some depths and interpolated between them.

    Live rounds are compared with the plain ones before and after them, so that a change of the
    machine's speed between those does not count.

    Args:
        steps: of each drafter that runs a model, its step as a share of the target's, where it has
            not been measured.
    """

    def __init__(self, steps: Mapping[str, float] | None = None) -> None:
        self.sampled = False
        """Whether rounds sample now; sampled ones cost more."""
        self._steps = dict(steps or {})
        self._reading: dict[str, float] = {}
        self._points: dict[tuple[str, Where], dict[int, Point]] = {}
        self._samples: dict[tuple[str, int, Where], list[float]] = {}
        self._alone = ALONE
        self._replay: Point = (0.0, 0.0)
        self._costs: dict[tuple[str, Where], dict[int, float]] = {}
        """Cached results of ``rounds``, until something new is learned."""
        self._plain: deque[tuple[int, float]] = deque(maxlen=15)
        """Context length and seconds of the newest plain steps."""
        self._own = 0
        """How many of the last ones were not restored."""
        self._run: list[float] = []
        """Seconds of the newest rounds of a pipelined run."""
        self.pending: list[tuple[str, int, float, bool, float]] = []
        """Drafted rounds since the newest plain one: drafter, depth, seconds, whether it began with
        a replay, expected cost."""
        self.surprise = 0.0
        """Plain steps by which rounds of unknown kinds exceeded their estimates."""

    def verify(self, rows: int, length: int) -> float:
        """A round that verifies ``rows`` - 1 tokens which cost nothing to draft."""
        return 1.0 if rows == 1 else self.rounds(GIVEN, (rows - 1,), length)[0]

    def step(self, drafter: str) -> float:
        """One pass of a drafter's model, in plain steps; 0 for a lookup."""
        return self._steps.get(drafter.removesuffix(BRANCHED), 0.0)

    def drafting(self, drafter: str, depth: int) -> float:
        """Drafting that many tokens, in plain steps; some drafters do it in one pass."""
        return self.step(drafter) * (1 if drafter in BLOCKS else depth)

    def round(self, drafter: str | None, depth: int, length: int) -> float:
        """A whole round of a drafter that has read everything, in plain steps."""
        return 1.0 if not drafter or depth == 0 else self.rounds(drafter, (depth,), length)[0]

    def rounds(self, drafter: str, depths: Sequence[int], length: int) -> list[float]:
        """The same for several depths above 0; ``BRANCHED`` follows the name of a branched one."""
        if drafter.endswith(BRANCHED):
            chain = self.rounds(drafter.removesuffix(BRANCHED), depths, length)
            verify = self.rounds(GIVEN, [it + extra for extra in (0, 1) for it in depths], length)
            more = zip(verify, verify[len(depths) :], strict=False)
            return [cost + max(b - a, 0.0) for cost, (a, b) in zip(chain, more, strict=True)]
        name = drafter if drafter in self._steps else GIVEN
        where = self.sampled, bucket(length)
        costs = self._costs.setdefault((name, where), {})
        for depth in depths:
            if depth not in costs:
                factor = _between(self._near(name, where), depth)
                costs[depth] = factor * self._parts(name, depth, length)
        return [costs[depth] for depth in depths]

    def catching_up(self, drafter: str, unread: int) -> float:
        """What reading committed tokens adds to the first draft step, which reads one anyway."""
        each = self._reading.get(drafter, READING * self.step(drafter))
        return each * max(unread - 1, 0)

    @property
    def replay(self) -> float:
        """What a partial accept adds, in plain steps, where rows are taken back by replay; the
        device does it at the beginning of the next round."""
        return max(self._replay[0], 0.0)

    @property
    def waiting(self) -> float:
        """Plain steps that the device waits for the host before a round that is not launched
        ahead."""
        return self._alone - 1

    def seconds(self, length: int, *, own: bool = False) -> float | None:
        """A pipelined plain step at this context length; None without recent ones near it.

        Args:
            own: by this session only: earlier ones may be of a machine in another state.
        """
        seen = list(self._plain)[len(self._plain) - self._own if own else 0 :]
        near = [it for at, it in seen if 1 / NEAR < (at + 512) / (length + 512) < NEAR]
        return statistics.median(near[-5:]) if near else None

    def missing(self, length: int, models: Sequence[str] = ()) -> list[tuple[str, int]]:
        """Drafter and depth of the rounds that should be measured here, the fewest samples first;
        models' rounds before those of more rows."""
        kinds = [(name, depth) for name in models for depth in MODEL_DEPTHS]
        kinds += [(GIVEN, rows - 1) for rows in ROWS]
        where = self.sampled, bucket(length)
        counts = {it: len(self._samples.get((*it, where), ())) for it in kinds}
        return sorted((it for it in kinds if counts[it] < SAMPLES), key=counts.__getitem__)

    def calibrate(self, drafter: str, depth: int, length: int, cost: float) -> None:
        """Rounds in a row, measured when idle, took so many plain steps each; at depth 0 plain ones
        that were not launched ahead."""
        where = self.sampled, bucket(length)
        samples = self._samples.setdefault((drafter, depth, where), [])
        samples.append(positive(cost))
        cost = statistics.median(samples)
        if depth == 0:
            self._alone = min(max(cost, 1.01), PARAMETERS.leap)
            return
        factor = cost / self._parts(drafter, depth, length)
        self._points.setdefault((drafter, where), {})[depth] = factor, PARAMETERS.compared
        self._costs.clear()

    def knows_reading(self, drafter: str) -> bool:
        """Whether reading into its model was measured."""
        return drafter in self._reading

    def set_step(self, drafter: str, cost: float) -> None:
        """Record the cost of a draft step in plain steps."""
        self._steps[drafter] = positive(cost)
        self._costs.clear()

    def set_reading(self, drafter: str, cost: float) -> None:
        """Record the cost, in plain steps, of reading one token into a draft model."""
        self._reading[drafter] = positive(cost)

    def set_plain(self, length: int, seconds: float) -> None:
        """A pipelined plain step took so many seconds."""
        before = self.seconds(length)
        self._plain.append((length, positive(seconds)))
        self._own = min(self._own + 1, len(self._plain))
        self._compare(length, before or seconds, seconds)

    def observe(
        self,
        drafter: str | None,
        depth: int,
        length: int,
        seconds: float,
        overlaps: int = 0,
        replayed: bool = False,
    ) -> None:
        """A round took so many seconds.

        Args:
            overlaps: 1 if it was itself launched ahead, plus 1 if the next one was. At 2, only the
                mean of several rounds is meaningful, at 1 nothing.
            replayed: it began with the replay of rows that the round before kept.
        """
        if seconds <= 0:
            return
        if drafter is not None and depth > 0:
            self._run = []
            cost = self.round(drafter, depth, length)
            self.pending.append((drafter, depth, seconds, replayed, cost))
            return
        if overlaps == 2:
            self._run.append(seconds)
            if len(self._run) == 4:
                mean, self._run = statistics.mean(self._run), []
                self.set_plain(length, mean)
        elif overlaps == 0 and not replayed:  # a replay's cost is known by plain steps alone
            self._run = []
            self.set_plain(length, seconds / self._alone)

    def as_dict(self) -> dict[str, Any]:
        return {
            "passes": [
                [depth + 1, at, factor * shipped(depth + 1)]
                for (name, (sampled, at)), points in self._points.items()
                if name == GIVEN and not sampled
                for depth, (factor, _) in points.items()
            ],
            "steps": self._steps,
            "reading": self._reading,
            "rounds": [
                [name, depth, *where, *point]
                for (name, where), points in self._points.items()
                for depth, point in points.items()
            ],
            "samples": [
                [name, depth, *where, samples]
                for (name, depth, where), samples in self._samples.items()
            ],
            "alone": self._alone,
            "replay": list(self._replay),
            "plain": [list(it) for it in self._plain],
        }

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Take over what ``as_dict`` gave; else a ValueError, TypeError or KeyError."""
        points: dict[tuple[str, Where], dict[int, Point]] = {}
        samples: dict[tuple[str, int, Where], list[float]] = {}
        rounds = stored.get("rounds", ())
        for rows, at, cost in stored["passes"]:
            factor = positive(cost) / shipped(int(positive(rows)))
            for where in ((False, int(at)), (True, int(at)))[: 1 if rounds else 2]:
                if 1 < rows <= ROWS[-1]:
                    points.setdefault((GIVEN, where), {})[int(rows) - 1] = factor, 1.0
                    samples[GIVEN, int(rows) - 1, where] = [float(cost)] * SAMPLES
        for name, depth, sampled, at, factor, count in rounds:
            where = bool(sampled), int(at)
            point = positive(factor), min(float(count), PARAMETERS.compared)
            points.setdefault((str(name), where), {})[min(int(positive(depth)), ROWS[-1])] = point
        for name, depth, sampled, at, seen in stored.get("samples", ()):
            where = bool(sampled), int(at)
            samples[str(name), int(depth), where] = [*map(positive, seen)][:SAMPLES]
        steps = {str(name): positive(value) for name, value in stored["steps"].items()}
        reading = {str(name): positive(value) for name, value in stored["reading"].items()}
        replay, times = stored.get("replay", (0.0, 0.0))
        plain = [(int(positive(at)), positive(seconds)) for at, seconds in stored.get("plain", ())]
        self._alone = min(max(positive(stored.get("alone", ALONE)), 1.0), PARAMETERS.leap)
        self._replay = min(max(float(replay), 0.0), 10.0), min(float(times), PARAMETERS.compared)
        self._points, self._samples = points, samples
        self._steps, self._reading = self._steps | steps, self._reading | reading
        self._plain, self._own = deque(plain, maxlen=self._plain.maxlen), 0
        self._run, self.pending = [], []
        self._costs.clear()

    def _parts(self, drafter: str, depth: int, length: int) -> float:
        """The cost of a round before its factor."""
        if drafter == GIVEN:
            return shipped(depth + 1)
        return self.verify(depth + 1, length) + self.drafting(drafter, depth)

    def _near(self, name: str, where: Where) -> Mapping[int, Point]:
        """The points of a drafter, in these conditions or the most similar ones."""
        known = [at for kind, at in self._points if kind == name]
        if not known:
            return {}
        sampled, at = where
        best = min(known, key=lambda it: (abs(it[1] - at), it[0] != sampled))
        return self._points[name, best]

    def _compare(self, length: int, before: float, after: float) -> None:
        """Learn from the rounds between two plain steps of so many seconds; the first of them
        counts only where nothing else is known, as leaving a pipelined run takes its time."""
        where = self.sampled, bucket(length)
        pending, self.pending = self.pending, []
        seen: dict[tuple[str, int], list[tuple[float, float]]] = {}
        replays: list[tuple[str, int, float]] = []
        for number, (drafter, depth, seconds, replayed, cost) in enumerate(pending, 1):
            name = drafter if drafter in self._steps else GIVEN
            if number == 1 and self._near(name, where):
                continue
            unit = before * (after / before) ** (number / len(pending))
            ratio = seconds / unit
            if replayed:
                replays.append((drafter, depth, ratio))
            elif not drafter.endswith(BRANCHED):
                seen.setdefault((name, depth), []).append((ratio, cost))
        for (name, depth), rounds in seen.items():
            points = self._points.setdefault((name, where), dict(self._near(name, where)))
            found = statistics.median(ratio for ratio, _ in rounds)
            found /= self._parts(name, depth, length)
            factor, count = points.get(depth, (_between(points, depth), 0.0))
            leap = PARAMETERS.leap if count else PARAMETERS.leap**2
            if not count:
                self.surprise += sum(ratio - cost for ratio, cost in rounds)
            change = min(max(found / factor, 1 / leap), leap)
            count = min(count + 1, PARAMETERS.compared)
            points[depth] = factor * change ** (1 / count), count
        if seen:
            self._costs.clear()
        for drafter, depth, ratio in replays:  # beside what the others have taken
            cost = self.round(drafter, depth, length)
            mean, count = self._replay
            more = min(max(ratio - cost, -cost), cost)
            self._replay = mean + (more - mean) / (count + 1), min(count + 1, PARAMETERS.compared)


def shipped(rows: int) -> float:
    """Plain steps of a pass, as long as nothing is known; beyond the table, as steep as before."""
    if rows in SHIPPED:
        return SHIPPED[rows]
    ranks = [*SHIPPED]
    at = min(bisect_left(ranks, rows), len(ranks) - 1)
    below, above = ranks[at - 1], ranks[at]
    share = (rows - below) / (above - below)
    return SHIPPED[below] + share * (SHIPPED[above] - SHIPPED[below])


def _between(points: Mapping[int, Point], depth: int) -> float:
    """The factor at a depth, in a line between its neighbours, flat beyond the outer ones."""
    if not points:
        return 1.0
    if depth in points:
        return points[depth][0]
    below = max((it for it in points if it < depth), default=None)
    above = min((it for it in points if it > depth), default=None)
    if below is None or above is None:
        return points[above if below is None else below][0]  # type: ignore[index]
    share = (depth - below) / (above - below)
    return points[below][0] + share * (points[above][0] - points[below][0])


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
