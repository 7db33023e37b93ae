"""Lines of a fixed width, as parts of text that each have a role; a widget gives roles colours."""

from __future__ import annotations

from typing import Literal

from rich.cells import cell_len, set_cell_size

Role = Literal[
    "plain",
    "label",
    "value",
    "head",
    "good",
    "warn",
    "bad",
    "bar",
    "gain",
    "track",
    "mark",
    "chosen",
    "asked",
]

Line = tuple[tuple[str, Role], ...]
"""Parts from left to right, each with its role."""

BLANK: Line = ()


def cells(line: Line) -> int:
    """Columns that a terminal needs for it."""
    return sum(cell_len(text) for text, _ in line)


def cut(text: str, width: int) -> str:
    """``text`` in at most ``width`` columns, with an ellipsis where something is missing."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 0 else ""


def fitting(width: int, *texts: str) -> str:
    """The first of the texts that has room; else the last one, cut."""
    return next((text for text in texts if cell_len(text) <= width), cut(texts[-1], width))


def fit(line: Line, width: int) -> Line:
    """``line`` in exactly ``width`` columns."""
    parts: list[tuple[str, Role]] = []
    left = width
    for text, role in line:
        shown = cut(text, left)
        if shown:
            parts.append((shown, role))
            left -= cell_len(shown)
        if shown != text:
            break
    if left > 0:
        parts.append((" " * left, "plain"))
    return tuple(parts)


def sides(left: Line, right: Line, width: int) -> Line:
    """``left`` and, at the other end, ``right``; where both have no room, ``left`` is cut."""
    right = fit(right, min(cells(right), width))
    room = width - cells(right)
    if cells(left) > room - 1:
        left = fit(left, max(room - 1, 0))
    return fit((*left, (" " * (room - cells(left)), "plain"), *right), width)


def figure(label: str, value: str, width: int, role: Role = "value") -> Line:
    """A label on the left and its value on the right."""
    return sides(((label, "label"),), ((value, role),), width)


def wrapped(text: str, width: int, rows: int) -> list[str]:
    """``text`` broken between words into ``rows`` strings; what has no room ends in an ellipsis."""
    rest = text.split()
    lines: list[str] = []
    while rest and len(lines) < rows and width > 0:
        taken = 1
        while taken < len(rest) and cell_len(" ".join(rest[: taken + 1])) <= width:
            taken += 1
        if len(lines) == rows - 1:
            taken = len(rest)
        lines.append(cut(" ".join(rest[:taken]), width))
        rest = rest[taken:]
    return lines + [""] * (rows - len(lines))


def ruled(title: str, width: int, right: Line = BLANK) -> Line:
    """A title, a rule, and on the right what sums its section up."""
    right = fit(right, min(cells(right), max(width - cell_len(title) - 3, 0)))
    end: Line = ((" ", "plain"), *right) if right else ()
    rule = max(width - cell_len(title) - 1 - cells(end), 0)
    return fit(((f"{title} ", "head"), ("─" * rule, "track"), *end), width)
