"""A list to search in, by typing above it."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input, OptionList


class Search(Input):
    """What to search for; Down goes to the list."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("down", "app.focus_next", show=False)]


class Rows(OptionList):
    """The list, of rows with several lines each; Up on the first one goes back to the search."""

    DEFAULT_CSS = """
    Rows {
        height: 1fr;
        margin-top: 1;
        text-wrap: nowrap;
        text-overflow: ellipsis;
        Box.-short & { margin-top: 0; }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "up", "Up", show=False),
        Binding("j", "cursor_down", "Down", show=False),
    ]

    def action_up(self) -> None:
        if self.highlighted in (0, None):
            self.screen.focus_previous()
        else:
            self.action_cursor_up()
