"""The live panel as lines: a pure function of a ``PanelState`` and of the room there is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import itemgetter

from ..widgets.lines import BLANK, Line, fit
from . import roomrows, speedrows, trustrows
from .state import PanelState

Block = Callable[[PanelState, int, int], list[Line]]
"""From a state, the width and a number of lines to so many lines."""

BLOCKS: dict[str, Block] = {
    "activity": speedrows.activity,
    "pair": speedrows.pair,
    "speed head": speedrows.speed_head,
    "speed": speedrows.speed,
    "history": speedrows.history,
    "marks": speedrows.changes,
    "latency": speedrows.latency,
    "speculation head": speedrows.speculation_head,
    "acceptance": speedrows.acceptance,
    "acceptance now": speedrows.acceptance_now,
    "positions": speedrows.positions,
    "axis": speedrows.axis_of_positions,
    "passes": speedrows.passes,
    "set": speedrows.chosen,
    "why": speedrows.why,
    "room head": roomrows.head,
    "context": roomrows.context,
    "memory": roomrows.memory,
    "plan": roomrows.plan,
    "energy head": roomrows.energy_head,
    "power": roomrows.power,
    "joules": roomrows.joules,
    "joules of plain": roomrows.joules_of_plain,
    "trust head": trustrows.head,
    "badge": trustrows.badge,
    "kernels": trustrows.kernels,
}

ROWS: tuple[tuple[str, int], ...] = (
    ("activity", 0),
    ("pair", 5),
    ("pair", 5),
    ("gap 1", 8),
    ("speed head", 0),
    ("speed", 0),
    ("speed", 3),
    ("speed", 3),
    ("history", 0),
    ("history", 2),
    ("history", 7),
    ("marks", 1),
    ("latency", 1),
    ("gap 2", 8),
    ("speculation head", 0),
    ("acceptance", 0),
    ("acceptance now", 2),
    ("positions", 1),
    ("positions", 3),
    ("positions", 7),
    ("axis", 6),
    ("passes", 0),
    ("set", 7),
    ("why", 1),
    ("why", 2),
    ("why", 3),
    ("gap 3", 8),
    ("room head", 4),
    ("context", 0),
    ("memory", 1),
    ("plan", 6),
    ("gap 4", 8),
    ("energy head", 4),
    ("power", 1),
    ("power", 6),
    ("joules", 0),
    ("joules of plain", 6),
    ("gap 5", 8),
    ("trust head", 4),
    ("badge", 0),
    ("kernels", 2),
    ("kernels", 7),
)
"""Every line from top to bottom, and how soon it gives way where there is no room: 8 first."""


def plan(height: int) -> tuple[tuple[str, int], ...]:
    """The blocks of a panel so high, and the lines of each. It depends on nothing else, so that
    nothing moves while a reply streams."""
    order = sorted(range(len(ROWS)), key=lambda row: ROWS[row][1])
    kept = sorted(order[: max(height, 0)])
    return tuple(
        (name, len(list(rows)))
        for name, rows in groupby((ROWS[row] for row in kept), itemgetter(0))
    )


def panel(state: PanelState, width: int, height: int) -> tuple[Line, ...]:
    """``height`` lines, each of them ``width`` columns wide."""
    lines: list[Line] = []
    for name, rows in plan(height):
        block = BLOCKS.get(name)
        found = [BLANK] if block is None else block(state, width, rows)
        lines += found
    lines += [BLANK] * (height - len(lines))
    return tuple(fit(line, width) for line in lines[: max(height, 0)])


def named(y: int, height: int) -> str | None:
    """The block at a line of a panel so high; None: there is none."""
    at = 0
    for name, rows in plan(height):
        at += rows
        if y < at:
            return name if name in BLOCKS else None
    return None
