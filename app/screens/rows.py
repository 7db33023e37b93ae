"""A list to search in, by typing above it."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.binding import Binding, BindingType
from textual.strip import Strip
from textual.style import Style
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

MUTED = "$text-muted"
"""The style of what stands beside a name."""


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

    def _get_option_render(self, option: Option, style: Style) -> list[Strip]:
        """The chosen row has one colour: on its ground no shade can be read."""
        strips = super()._get_option_render(option, style)
        if self.highlighted is None or self.options[self.highlighted] is not option:
            return strips
        one = RichStyle(color=style.rich_style.color)
        return [
            Strip(Segment.apply_style(strip, post_style=one), strip.cell_length) for strip in strips
        ]

    def action_up(self) -> None:
        if self.highlighted in (0, None):
            self.screen.focus_previous()
        else:
            self.action_cursor_up()
