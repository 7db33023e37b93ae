"""Lines of text whose parts have roles, and a widget that gives each role its colours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import ClassVar, Literal, get_args

from rich._wrap import divide_line
from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.text import Text
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

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

ROLES: tuple[Role, ...] = get_args(Role)

Line = tuple[tuple[str, Role], ...]
"""Parts from left to right, each with its role."""

BLANK: Line = ()


def cells(line: Line) -> int:
    return sum(cell_len(text) for text, _ in line)


def cut(text: str, width: int) -> str:
    """``text`` in at most ``width`` columns; an ellipsis shows that it was cut."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 0 else ""


def fitting(width: int, *texts: str) -> str:
    """The first text that fits; else the last one, cut."""
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
    """``left`` and, at the right edge, ``right``; ``left`` is cut if needed."""
    right = fit(right, min(cells(right), width))
    room = width - cells(right)
    return (*fit(left, max(room - 1, 0)), (" " * min(room, 1), "plain"), *right)


def figure(label: str, value: str, width: int, role: Role = "value") -> Line:
    return sides(((label, "label"),), ((value, role),), width)


def wrapped(text: str, width: int, rows: int) -> list[str]:
    """``text`` wrapped into exactly ``rows`` strings; the last one is cut if needed."""
    line = Text(" ".join(text.split()))
    breaks = divide_line(line.plain, width, fold=False) if width > 0 else []
    parts = line.divide(breaks[: max(rows - 1, 0)])[:rows]
    lines = [cut(part.plain.rstrip(), width) for part in parts]
    return lines + [""] * (rows - len(lines))


def ruled(title: str, width: int, right: Line = BLANK) -> Line:
    """A title, a rule, and at the right edge a summary of its section."""
    right = fit(right, min(cells(right), max(width - cell_len(title) - 3, 0)))
    end: Line = ((" ", "plain"), *right) if right else ()
    rule = max(width - cell_len(title) - 1 - cells(end), 0)
    return fit(((f"{title} ", "head"), ("─" * rule, "track"), *end), width)


class LinesView(Widget):
    """Repaints only lines that changed and never causes a layout. Their text must be neutral."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"line--{role}" for role in ROLES}

    DEFAULT_CSS = """
    LinesView {
        & > .line--plain { color: $foreground; }
        & > .line--label { color: $text-muted; }
        & > .line--value { color: $foreground; text-style: bold; }
        & > .line--head { color: $text-primary; text-style: bold; }
        & > .line--good { color: $text-success; text-style: bold; }
        & > .line--warn { color: $text-warning; text-style: bold; }
        & > .line--bad { color: $text-error; text-style: bold; }
        & > .line--bar { color: $primary; }
        & > .line--gain { color: $success; }
        & > .line--track { color: $foreground 25%; }
        &:ansi > .line--track { text-style: dim; }
        & > .line--mark { color: $text-accent; }
        & > .line--chosen { color: $foreground; text-style: bold reverse; }
        & > .line--asked { color: $text-warning; text-style: bold underline; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lines: tuple[Line, ...] = ()

    def show_lines(self, lines: Sequence[Line]) -> None:
        old, self.lines = self.lines, tuple(lines)
        width = self.size.width
        for y, (before, now) in enumerate(zip_longest(old, self.lines)):
            if before != now:
                self.refresh(Region(0, y, width, 1))

    def render_line(self, y: int) -> Strip:
        line = self.lines[y] if y < len(self.lines) else BLANK
        width, style = self.size.width, self.get_component_rich_style
        parts = [Segment(text, style(f"line--{role}")) for text, role in fit(line, width)]
        return Strip(parts, width)
