"""What others have published of Macs: the costs of passes, and how drafters fare with a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..assets import folder
from ..choices import BLOCKS, MAX_DEPTH, MODELS
from ..control.cost import READING

DRAFT_STEP = 0.04
"""An assumption, in plain steps: a draft model with some 1/25 of the target's bytes."""


@dataclass(frozen=True, slots=True)
class Factor:
    """Published speed with a drafter at a depth over plain decoding, on one machine."""

    depth: int
    factor: float | None
    """None: of another machine only the depth is known."""
    where: str


@dataclass(frozen=True, slots=True)
class PublishedDrafter:
    """A drafter for a model, on any machine."""

    model: str
    drafter: str
    step: float
    """A pass of its own model, in plain steps."""
    whose: str
    where: str
    """Addresses of the report."""
    what: str
    """What exactly was measured."""
    derived: str
    """What was not published but follows, and from what."""
    depth: int = 0
    """Tokens drafted in a round, in that report."""
    tokens: Sequence[float] = ()
    """Tokens of such a round, the target's own included, for each kind of text; none where that is
    not known."""


@dataclass(frozen=True, slots=True)
class PublishedCurve:
    """Cost of a pass by rows, in plain steps, as its author reports it."""

    name: str
    machine: str
    whose: str
    where: str
    """Addresses of the report."""
    what: str
    """What exactly was measured."""
    points: Mapping[int, float]
    """Rows, ascending, to plain steps; 1 to 1."""
    derived: str = ""
    """Which of them were not published but follow from something else, and from what."""
    model: str = ""
    """Whose passes these are; empty: of no model in particular."""
    factors: Mapping[str, Factor] = field(default_factory=dict)
    """Speed over plain decoding that was published for this machine and model, by drafter."""
    drafters: Mapping[str, PublishedDrafter] = field(default_factory=dict)
    """Those of the model."""
    _costs: dict[int, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Of passes that were asked for, by rows."""

    @property
    def most(self) -> int:
        """The most rows that were measured: beyond them nothing is claimed."""
        return max(self.points)

    def cost(self, rows: int) -> float:
        """Plain steps of a pass: straight lines between the points, flat after the last one."""
        if rows not in self._costs:
            self._costs[rows] = float(np.interp(rows, [*self.points], [*self.points.values()]))
        return self._costs[rows]

    def room(self, room: int) -> int:
        """How deep it can be drafted: not beyond what was measured."""
        return min(room, self.most - 1, MAX_DEPTH)

    def step(self, drafter: str) -> float:
        """A pass of a drafter's model, in plain steps."""
        known = self.drafters.get(drafter)
        return DRAFT_STEP if known is None else known.step

    def round(self, drafter: str | None, drafted: int, unread: int = 0) -> float:
        """A round in plain steps, the host's moment excluded."""
        cost = self.cost(drafted + 1)
        if drafter in MODELS and drafted:
            steps = 1 if drafter in BLOCKS else drafted
            cost += self.step(drafter) * (steps + READING * max(unread - 1, 0))
        return cost


def published() -> list[PublishedCurve]:
    """The curves that ship."""
    drafters = [PublishedDrafter(**entry) for entry in _stored("drafters.json")]
    curves = []
    for entry in _stored("curves.json"):
        points = {int(rows): float(cost) for rows, cost in entry.pop("points").items()}
        factors = {name: Factor(**it) for name, it in entry.pop("factors", {}).items()}
        curve = PublishedCurve(**entry, points=points, factors=factors)
        own = {it.drafter: it for it in drafters if it.model == curve.model}
        curves.append(replace(curve, drafters=own))
    return curves


def _stored(name: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((folder() / name).read_text(encoding="utf-8"))
    return entries
