"""Numbers in a fixed width, so that nothing moves while they change."""

from __future__ import annotations

import math

DASH = "–"

UNITS = (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))


def number(value: float | None) -> float | None:
    """``value`` if it is a number, as a float."""
    if value is None:
        return None
    try:
        known = float(value)
    except OverflowError:
        known = math.inf if value > 0 else -math.inf
    return None if math.isnan(known) else known


def fixed(value: float | None, width: int, decimals: int = 0) -> str:
    """``value`` right-aligned in ``width`` columns; as it grows, it loses decimals, then thousands.

    A dash if it is unknown.
    """
    known = number(value)
    if known is None:
        return DASH.rjust(width)
    for unit, factor in UNITS if abs(known) < 1e15 else ():
        for places in range(decimals, -1, -1):
            # Adding zero turns a negative zero into zero.
            text = f"{round(known / factor, places) + 0.0:.{places}f}{unit}"
            if len(text) <= width:
                return text.rjust(width)
    return ("∞" if known > 0 else "-∞").rjust(width)[-width:]


def whole(value: float | None, width: int) -> str:
    known = number(value)
    if known is not None and abs(known) < 1e15:
        text = f"{round(known):,}"
        if len(text) <= width:
            return text.rjust(width)
    return fixed(value, width, 1)


def percent(share: float | None) -> str:
    """A share of 1, in four columns."""
    known = number(share)
    if known is None:
        return f"{DASH:>4}"
    return f"{fixed(max(min(known, 9.99), 0) * 100, 3)}%"


def milliseconds(value: float | None) -> str:
    """Milliseconds in seven columns; from ten seconds on, seconds."""
    known = number(value)
    if known is None:
        return DASH.rjust(7)
    if known >= 9999.5:
        return f"{fixed(known / 1e3, 5, 1)} s"
    return f"{fixed(known, 4, 1 if known < 9.95 else 0)} ms"


def seconds(value: float | None) -> str:
    known = number(value)
    return milliseconds(None if known is None else known * 1e3)


def gigabytes(value: float | None) -> str:
    """Bytes in GiB in five columns, without the unit; three decimals below a tenth."""
    known = number(value)
    size = None if known is None else known / 2**30
    return fixed(size, 5, 3 if size is not None and size < 0.0995 else 1)


def ratio(part: float | None, whole: float | None) -> float | None:
    """part / whole; None if that is meaningless."""
    top, bottom = number(part), number(whole)
    if top is None or bottom is None or not 0 < bottom < math.inf or not 0 <= top < math.inf:
        return None
    return top / bottom
