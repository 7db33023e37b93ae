"""What a pass costs on Macs that somebody measured and published."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ..assets import folder

DRAFT_STEP = 0.04
"""An assumption, in plain steps: a draft model with some 1/25 of the target's bytes."""


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
    """Rows to plain steps; 1 to 1."""

    @property
    def most(self) -> int:
        """The most rows that were measured: beyond them nothing is claimed."""
        return max(self.points)

    def cost(self, rows: int) -> float:
        """Plain steps of a pass: straight lines between the points, flat after the last one."""
        rows = min(rows, self.most)
        below = max(at for at in self.points if at <= rows)
        above = min(at for at in self.points if at >= rows)
        if below == above:
            return self.points[below]
        share = (rows - below) / (above - below)
        return self.points[below] + share * (self.points[above] - self.points[below])


def published() -> list[PublishedCurve]:
    """The curves that ship."""
    stored = json.loads((folder() / "curves.json").read_text(encoding="utf-8"))
    return [
        PublishedCurve(
            **{
                **entry,
                "points": {int(rows): float(cost) for rows, cost in entry["points"].items()},
            }
        )
        for entry in stored
    ]
