"""A widget that is nothing but lines: it repaints those that changed, and never lays out anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, get_args

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from .lines import BLANK, Line, Role, fit

ROLES: tuple[Role, ...] = get_args(Role)


class Lined(Widget):
    """Lines of text in the colours of their roles. All text in them must be neutral."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"lined--{role}" for role in ROLES}

    DEFAULT_CSS = """
    Lined {
        & > .lined--plain { color: $foreground; }
        & > .lined--label { color: $text-muted; }
        & > .lined--value { color: $foreground; text-style: bold; }
        & > .lined--head { color: $text-primary; text-style: bold; }
        & > .lined--good { color: $text-success; text-style: bold; }
        & > .lined--warn { color: $text-warning; text-style: bold; }
        & > .lined--bad { color: $text-error; text-style: bold; }
        & > .lined--bar { color: $primary; }
        & > .lined--gain { color: $success; }
        & > .lined--track { color: $foreground 25%; }
        &:ansi > .lined--track { text-style: dim; }
        & > .lined--mark { color: $text-accent; }
        & > .lined--chosen { color: $foreground; text-style: bold reverse; }
        & > .lined--asked { color: $text-warning; text-style: bold underline; }
    }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: tuple[Line, ...] = ()
        self._roles: dict[Role, Style] = {}

    @property
    def lines(self) -> tuple[Line, ...]:
        """What it shows."""
        return self._lines

    def show_lines(self, lines: Sequence[Line]) -> None:
        """Show these; what has not changed is not painted again."""
        old, self._lines = self._lines, tuple(lines)
        width = self.size.width
        for y in range(max(len(old), len(self._lines))):
            before = old[y] if y < len(old) else None
            if before != (self._lines[y] if y < len(self._lines) else None):
                self.refresh(Region(0, y, width, 1))

    def render_line(self, y: int) -> Strip:
        line = self._lines[y] if y < len(self._lines) else BLANK
        if not self._roles:
            self._roles = {role: self.get_component_rich_style(f"lined--{role}") for role in ROLES}
        width = self.size.width
        return Strip([Segment(text, self._roles[role]) for text, role in fit(line, width)], width)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._roles = {}
