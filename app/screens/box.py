"""The frame of every screen that lies over the chat."""

from __future__ import annotations

from typing import TypeVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import Static

Result = TypeVar("Result")

TIGHT = (76, 26)
"""Columns and rows below which a box takes the whole screen."""

SHORT = 16
"""Rows below which nothing is spent on blank lines."""


class Box(ModalScreen[Result]):
    """A framed box with a title above, and a line below that names the keys.

    A subclass says what is inside with ``inside``; ``hint`` changes the line below.
    """

    heading = ""
    _keys: tuple[tuple[str, str], ...] = ()

    DEFAULT_CSS = """
    Box {
        align: center middle;
        background: $background 60%;
        & > #box {
            width: 90%;
            max-width: 110;
            height: 90%;
            max-height: 44;
            padding: 0 1;
            border: round $primary;
            border-title-color: $primary;
            background: $surface;
        }
        &.-tight > #box { width: 100%; max-width: 100%; height: 100%; max-height: 100%; }
        #told { height: auto; max-height: 4; color: $text; display: none; }
        #told.-warning { color: $text-warning; }
        #told.-error { color: $text-error; }
        &.-tight #told { max-height: 2; &.-error { max-height: 4; } }
        #hint { height: auto; color: $text-muted; text-wrap: nowrap; }
    }
    """

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = Content(self.heading)
            yield from self.inside()
            yield Static("", id="told", markup=False)
            yield Static("", id="hint", markup=False)

    def inside(self) -> ComposeResult:
        """What is in the box, above its last lines."""
        raise NotImplementedError

    def on_resize(self, event: Resize) -> None:
        columns, rows = TIGHT
        self.set_class(event.size.width < columns or event.size.height < rows, "-tight")
        self.set_class(event.size.height < SHORT, "-short")
        self.call_after_refresh(self._lay_out)

    def entitle(self, title: str) -> None:
        """Change the title; it is taken as text, not as markup."""
        self.query_one("#box").border_title = Content(title)

    def hint(self, *keys: tuple[str, str]) -> None:
        """Name the keys that work now, each with what it does, the most important ones first."""
        self._keys = keys
        self._lay_out()

    def _lay_out(self) -> None:
        """Put as many keys as there is room for into the lines below, none of them broken."""
        it = self.query_one("#hint", Static)
        width = it.size.width or self.size.width
        lines, room = [Content("")], 2 if self.has_class("-tight") else 3
        for key, what in self._keys:
            name = Content.assemble((key, "bold"), f" {what}")
            longer = Content("  ").join([lines[-1], name]) if lines[-1] else name
            if longer.cell_length <= width:
                lines[-1] = longer
            elif len(lines) < room:
                lines.append(name)
        it.update(Content("\n").join(lines))

    def tell(self, line: str, severity: str = "") -> None:
        """Say a line below, which is neutral text already; an empty one takes it away."""
        told = self.query_one("#told", Static)
        told.set_class(severity == "warning", "-warning")
        told.set_class(severity == "error", "-error")
        told.display = bool(line)
        told.update(Content(line))
