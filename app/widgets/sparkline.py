"""A speed history as columns of eighths, with the moments at which a setting changed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..talk.panel import Mark
from .bars import eighth
from .figures import number
from .lines import BLANK, Line, Role, cut

SIGN = "▴"

STEPS = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
"""Where a scale may end, times a power of ten: it must not change with every value."""


def sparkline(
    values: Sequence[float], width: int, rows: int, plain: float | None = None
) -> list[Line]:
    """The newest ``width`` values, from the top row to the bottom one; the newest is on the right.

    The scale begins at 0. Above ``plain`` the columns have another colour.
    """
    if width < 1:
        return [BLANK] * rows
    shown = [_finite(value) for value in values[-width:]]
    end = scale(max(shown, default=0.0))
    heights = [max(round(value / end * 8 * rows), 1 if value > 0 else 0) for value in shown]
    level = number(plain)
    base = 8 * rows if level is None else max(min(round(level / end * 8 * rows), 8 * rows), 0)
    pad = " " * (width - len(heights))
    lines: list[Line] = []
    for row in reversed(range(rows)):
        text = pad + "".join(eighth(height, row) for height in heights)
        role: Role = "good" if level is not None and 8 * row >= base - 2 else "bar"
        lines.append(((text, role),))
    return lines


def marks(found: Sequence[Mark], count: int, width: int) -> Line:
    """A sign under each value at which something changed, and what, where there is room.

    Args:
        count: how many values the history has.
    """
    if width < 1:
        return BLANK
    first = count - width
    cells: list[str] = [" "] * width
    seen = {mark.at - first: mark.what for mark in found if 0 <= mark.at - first < width}
    for at in seen:
        cells[at] = SIGN
    free = width
    for at in sorted(seen, reverse=True):
        what = seen[at]
        if at + 2 + len(what) <= free:
            start = at + 2
        elif at - 1 - len(what) >= 0 and not any(at - 2 - len(what) <= a < at for a in seen):
            start = at - 1 - len(what)
        else:
            what, start = cut(what, max(free - at - 2, 0)), at + 2
            if len(what) < 4:
                what = ""
        cells[start : start + len(what)] = what
        free = min(at, start) - 1
    return (("".join(cells), "mark"),)


def scale(highest: float) -> float:
    """The end of a scale that holds ``highest``."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next((step * power for step in STEPS if step * power >= highest), highest)


def _finite(value: float) -> float:
    known = number(value)
    return 0.0 if known is None else max(min(known, 1e12), 0.0)
