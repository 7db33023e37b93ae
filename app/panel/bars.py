"""Bars that read without colour: a heavy line on a light one, and columns of eighths."""

from __future__ import annotations

from collections.abc import Sequence

from ..widgets.lines import Line, Role
from .figures import number

EIGHTHS = " ▁▂▃▄▅▆▇█"

FULL, HALF, TRACK, NOTCH = "━", "╸", "─", "┃"


def bar(share: float | None, width: int, role: Role = "bar", notch: float | None = None) -> Line:
    """A share of 1 in ``width`` columns, in half columns.

    Args:
        notch: a share that is marked on it.
    """
    halves = round(_clamped(share) * 2 * width)
    if halves == 0 and _clamped(share) > 0:
        halves = 1
    heavy = FULL * (halves // 2) + HALF * (halves % 2)
    text = heavy + TRACK * (width - len(heavy))
    if number(notch) is None or width == 0:
        return _runs(text, len(heavy), role)
    at = min(int(_clamped(notch) * width), width - 1)
    left, right = (
        _runs(text[:at], len(heavy), role),
        _runs(text[at + 1 :], len(heavy) - at - 1, role),
    )
    return (*left, (NOTCH, "mark"), *right)


def columns(shares: Sequence[float], width: int, rows: int) -> list[Line]:
    """A column for each share of 1, from the top row to the bottom one.

    Two columns wide with a gap where there is room, else one; what has no room is left out.
    """
    if rows < 1:
        return []
    step = next((step for step in (3, 2, 1) if len(shares) * step - (step > 1) <= width), 1)
    body = "x" * max(step - 1, 1)
    heights = [round(_clamped(share) * 8 * rows) for share in shares[: max(width, 0)]]
    # A position that is hardly ever accepted is still one that was drafted.
    heights = [max(height, 1) for height in heights]
    gap = " " if step > 1 else ""
    return [
        ((gap.join(eighth(height, row) * len(body) for height in heights), "bar"),)
        for row in reversed(range(rows))
    ]


def axis(count: int, width: int) -> str:
    """Positions from 1 on, under ``columns``."""
    step = next((step for step in (3, 2, 1) if count * step - (step > 1) <= width), 1)
    text = ""
    for position in range(1, count + 1):
        at = (position - 1) * step
        shown = position == 1 or position % (1 if step == 3 else 4) == 0
        if shown and len(text) <= at and at + len(str(position)) <= width:
            text = text.ljust(at) + str(position)
    return text


def eighth(height: int, row: int) -> str:
    """The block that a column of ``height`` eighths has in a row, 0 the lowest."""
    return EIGHTHS[max(min(height - 8 * row, 8), 0)]


def _clamped(share: float | None) -> float:
    known = number(share)
    return 0.0 if known is None else max(min(known, 1.0), 0.0)


def _runs(text: str, heavy: int, role: Role) -> Line:
    heavy = max(heavy, 0)
    parts: tuple[tuple[str, Role], ...] = ((text[:heavy], role), (text[heavy:], "track"))
    return tuple(part for part in parts if part[0])
