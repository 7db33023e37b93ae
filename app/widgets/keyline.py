"""The last line: the keys that matter now, or what has just been said to the user."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from macspec.plaintext import one_line

STAYS = 4.0
"""Seconds that a line stays, plus ``READING`` for each character; errors stay twice as long."""

READING = 0.05

Hint = tuple[str, str]
"""A key, and what it does."""


class KeyLine(Static):
    """Names keys, as many as there is room for, and says a line now and then in their place."""

    DEFAULT_CSS = """
    KeyLine {
        height: auto;
        max-height: 3;
        padding: 0 1;
        color: $text-muted;
        &.-information { color: $text; }
        &.-warning { color: $text-warning; }
        &.-error { color: $text-error; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._hints: Sequence[Hint] = ()
        self._timer: Timer | None = None
        self.told = ""
        """What is said now; empty while keys are named."""

    def show(self, hints: Sequence[Hint]) -> None:
        """Name these keys, the most important ones first."""
        if hints != self._hints:
            self._hints = hints
            self._draw()

    def tell(self, line: str, severity: str = "information", *, also: bool = False) -> None:
        """Say a line for a while.

        Args:
            line: made neutral here.
            severity: information, warning or error.
            also: what is said now stays above it.
        """
        self.told = "\n".join([*([self.told] if also and self.told else []), one_line(line)])
        self.set_class(severity == "information", "-information")
        self.set_class(severity == "warning", "-warning")
        self.set_class(severity == "error", "-error")
        self._draw()
        if self._timer is not None:
            self._timer.stop()
        seconds = STAYS + READING * len(self.told)
        self._timer = self.set_timer(2 * seconds if severity == "error" else seconds, self.hush)

    def hush(self) -> None:
        """Name keys again."""
        if self.told:
            self.told = ""
            self.remove_class("-information", "-warning", "-error")
            self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        before = self.size.height
        content = Content(self.told) if self.told else fitted(self._hints, self.size.width)
        self.update(content, layout=bool(self.told) or before != 1)


def fitted(hints: Sequence[Hint], width: int) -> Content:
    """As many hints as fit into one line, none of them broken."""
    line = Content("")
    for key, what in hints:
        hint = Content.assemble((key, "bold $text"), f" {what}")
        longer = Content("  ").join([line, hint]) if line else hint
        if longer.cell_length <= width or not line:
            line = longer
    return line
