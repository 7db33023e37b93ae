"""Bars, columns, the sparkline and large digits, all readable without colour."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from operator import itemgetter

from rich.cells import cell_len, set_cell_size
from textual.renderables.digits import DIGITS, DIGITS3X3_BOLD

from macspec.plaintext import one_line

from ..widgets.lines import BLANK, Line, Role
from .figures import DASH, number
from .panelstate import Mark

EIGHTHS = " ▁▂▃▄▅▆▇█"

FULL, HALF, TRACK, NOTCH = "━", "╸", "─", "┃"


def bar(share: float | None, width: int, role: Role = "bar", notch: float | None = None) -> Line:
    """A share of 1 in ``width`` columns, by half columns; ``notch``: a share to mark on it."""
    known = _between(share, 1.0)
    halves = max(round(known * 2 * width), known > 0)
    heavy = FULL * (halves // 2) + HALF * (halves % 2)
    text, end = heavy + TRACK * (width - len(heavy)), len(heavy)
    at = width
    if number(notch) is not None and width > 0:
        at = min(int(_between(notch, 1.0) * width), width - 1)
    parts: Line = (
        (heavy[:at], role),
        (text[end:at], "track"),
        (NOTCH if at < width else "", "mark"),
        (heavy[at + 1 :], role),
        (text[max(at + 1, end) :], "track"),
    )
    return tuple(part for part in parts if part[0])


def columns(shares: Sequence[float], width: int, rows: int) -> list[Line]:
    """One column per share of 1; rows from top to bottom, from two on with the positions below.

    Each is two columns wide with a gap if there is room; shares beyond the width are left out.
    """
    step = next((step for step in (3, 2, 1) if len(shares) * step - (step > 1) <= width), 1)
    under: list[Line] = [((axis(len(shares), step, width), "label"),)] if rows > 1 else []
    each = max(step - 1, 1)
    # A position that is hardly ever accepted was still drafted.
    high = 8 * (rows - len(under))
    heights = [max(round(_between(share, 1.0) * high), 1) for share in shares[: max(width, 0)]]
    gap = " " if step > 1 else ""
    return [
        ((gap.join(eighth(height, row) * each for height in heights), "bar"),)
        for row in reversed(range(rows - len(under)))
    ] + under


def axis(count: int, step: int, width: int) -> str:
    """Positions from 1 on, under columns that are ``step`` apart."""
    text = ""
    for position in range(1, count + 1):
        at = (position - 1) * step
        shown = position == 1 or position % (1 if step == 3 else 4) == 0
        if shown and len(text) <= at and at + len(str(position)) <= width:
            text = text.ljust(at) + str(position)
    return text


def eighth(height: int, row: int) -> str:
    """What a column of ``height`` eighths shows in a row; row 0 is the lowest."""
    return EIGHTHS[max(min(height - 8 * row, 8), 0)]


def _between(value: float | None, most: float) -> float:
    """``value`` from 0 to ``most``; 0 if it is unknown."""
    known = number(value)
    return 0.0 if known is None else max(min(known, most), 0.0)


SIGN = "▴"

STEPS = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
"""Ends of a scale, times a power of ten: few, so that it rarely changes."""


def sparkline(
    values: Sequence[float], width: int, rows: int, plain: float | None = None
) -> list[Line]:
    """The newest ``width`` values, the newest on the right; rows from top to bottom.

    The scale starts at 0. What exceeds ``plain`` has another colour: the upper rows, or in a single
    row the whole column.
    """
    if width < 1 or rows < 1:
        return [BLANK] * max(rows, 0)
    shown = [_between(value, 1e12) for value in values[-width:]]
    level = _between(plain, 1e12)
    end, below = scale(max(shown, default=0.0), level, rows)
    heights = [max(round(value / end * 8 * rows), 1 if value > 0 else 0) for value in shown]
    pad: tuple[str, Role] = (" " * (width - len(heights)), "plain")
    lines: list[Line] = []
    for row in reversed(range(rows)):
        text = "".join(eighth(height, row) for height in heights)
        faster = [value > level if rows == 1 else row >= below for value in shown]
        runs = groupby(zip(text, faster, strict=True), itemgetter(1))
        lines.append((pad, *(_run(found, gains and level > 0) for gains, found in runs)))
    return lines


def marks(found: Sequence[Mark], count: int, width: int) -> Line:
    """A sign under each of ``count`` values at which something changed, named if there is room.

    A name that does not fit on the right of its sign goes to the left of it, together with those
    of the next signs; newer names take precedence, and a sign without a name is left out.
    """
    first = count - width
    seen = {mark.at - first: one_line(mark.what) for mark in found if 0 <= mark.at - first < width}
    signs = sorted(seen)
    text = ""
    waiting: list[int] = []
    for at, following in pairwise([*signs, width + 1]):
        what = seen[at]
        if at + 2 + cell_len(what) > following - 1:
            waiting.append(at)
            continue
        text = _before(text, waiting, seen)
        waiting = []
        text = f"{set_cell_size(text, at)}{SIGN} {what}"
    return ((_before(text, waiting, seen), "mark"),)


def _before(text: str, signs: Sequence[int], seen: Mapping[int, str]) -> str:
    """``text`` and some signs, with as many of their names in front as fit."""
    if not signs:
        return text
    *others, newest = signs
    own = cell_len(seen[newest])
    if others and newest - others[-1] - 3 >= own:
        text = set_cell_size(_before(text, others, seen), newest - 1 - own)
        return f"{text}{seen[newest]} {SIGN}"
    room = signs[0] - 1 - (cell_len(text) + 1 if text else 0)
    names: list[str] = []
    for at in reversed(signs):
        joined = ", ".join([seen[at], *names])
        if cell_len(joined) > room:
            break
        names.insert(0, seen[at])
    label = ", ".join(names)
    text = f"{set_cell_size(text, signs[0] - 1 - cell_len(label))}{label}" if label else text
    for at in signs[len(signs) - len(names) :]:
        text = f"{set_cell_size(text, at)}{SIGN}"
    return text


def scale(highest: float, level: float = 0.0, rows: int = 1) -> tuple[float, int]:
    """The end of a scale that includes ``highest``, and the number of rows below ``level``.

    If possible, ``level`` is the edge between two rows.
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


def _run(found: Iterable[tuple[str, bool]], gains: bool) -> tuple[str, Role]:
    return "".join(sign for sign, _ in found), "gain" if gains else "bar"


HIGH = 3
POINT = (" ", " ", "▪")


def big(text: str) -> tuple[str, str, str] | None:
    """A number three lines high; None if one of its characters has no large form."""
    lines = ["", "", ""]
    for character in text.replace(DASH, "-"):
        if character == ".":
            glyph: tuple[str, ...] = POINT
        elif character in DIGITS:
            at = DIGITS.index(character) * HIGH
            glyph = tuple(line.ljust(3) for line in DIGITS3X3_BOLD[at : at + HIGH])
        else:
            return None
        lines = [line + part for line, part in zip(lines, glyph, strict=True)]
    return lines[0], lines[1], lines[2]
