"""A speed history as columns of eighths, with the moments at which a setting changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from macspec.plaintext import one_line

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

    The scale begins at 0. What rises above ``plain`` has another colour: its upper rows, or in a
    single row the whole column.
    """
    if width < 1 or rows < 1:
        return [BLANK] * max(rows, 0)
    shown = [_finite(value) for value in values[-width:]]
    level = 0.0 if plain is None else _finite(plain)
    end, below = scale(max(shown, default=0.0), level, rows)
    heights = [max(round(value / end * 8 * rows), 1 if value > 0 else 0) for value in shown]
    pad: tuple[str, Role] = (" " * (width - len(heights)), "plain")
    if rows == 1 and level > 0:
        faster = [value > level for value in shown]
        runs = groupby(zip(heights, faster, strict=True), itemgetter(1))
        return [(pad, *(_run(found, gains) for gains, found in runs))]
    lines: list[Line] = []
    for row in reversed(range(rows)):
        text = "".join(eighth(height, row) for height in heights)
        lines.append((pad, (text, "gain" if level > 0 and row >= below else "bar")))
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
    seen = {mark.at - first: one_line(mark.what) for mark in found if 0 <= mark.at - first < width}
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


def scale(highest: float, level: float = 0.0, rows: int = 1) -> tuple[float, int]:
    """The end of a scale that holds ``highest``, and how many rows lie below ``level``.

    Where it can be, ``level`` is the edge between two rows.
    """
    if level > 0:
        for below in range(rows - 1, 0, -1):
            if level * rows / below >= highest:
                return level * rows / below, below
    if highest <= 0:
        return 1.0, rows
    power = 10.0 ** math.floor(math.log10(highest))
    end = next((step * power for step in STEPS if step * power >= highest), highest)
    return end, max(min(round(level / end * rows), rows), 1)


def _run(found: Iterable[tuple[int, bool]], gains: bool) -> tuple[str, Role]:
    return "".join(eighth(height, 0) for height, _ in found), "gain" if gains else "bar"


def _finite(value: float) -> float:
    known = number(value)
    return 0.0 if known is None else max(min(known, 1e12), 0.0)
