"""Completions in a list above the prompt."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widget import Widget
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from macspec.plaintext import one_line

from ..completion import Completion

ROWS = 8
"""Completions that are seen at once."""


class Popup(OptionList, can_focus=False):
    """Shows completions over what is above; the prompt gives it the keys."""

    DEFAULT_CSS = """
    Popup {
        display: none;
        overlay: screen;
        constrain: inside none;
        width: auto;
        max-width: 100%;
        height: auto;
        border: none;
        padding: 0 1;
        background: $panel;
        text-wrap: nowrap;
        text-overflow: ellipsis;
        scrollbar-size-vertical: 1;
        &.-open { display: block; }
    }
    """

    def __init__(self) -> None:
        super().__init__(compact=True, markup=False)
        self._completions: Sequence[Completion] = ()
        self.chosen = False
        """Whether somebody has walked through the list."""

    @property
    def open(self) -> bool:
        """Whether it is seen."""
        return bool(self._completions)

    @property
    def completion(self) -> Completion | None:
        """The one that is highlighted."""
        if self.highlighted is None or not self.open:
            return None
        return self._completions[self.highlighted]

    def show(self, completions: Sequence[Completion]) -> None:
        """Show these instead; none closes the list."""
        self.chosen = False
        if list(completions) == list(self._completions):
            return
        self._completions = completions
        self.set_class(bool(completions), "-open")
        wide = max((len(one_line(each.label)) for each in completions), default=0)
        self.set_options([Option(_row(each, wide)) for each in completions])
        self.highlighted = 0 if completions else None
        rows = min(len(completions), ROWS, max(2, self.app.size.height // 3))
        self.styles.max_height = rows
        frame = self.parent.styles.gutter.top if isinstance(self.parent, Widget) else 0
        self.styles.offset = (0, -rows - frame)

    def walk(self, by: int) -> None:
        """Highlight the next one, or the one before."""
        self.chosen = True
        if by > 0:
            self.action_cursor_down()
        else:
            self.action_cursor_up()


def _row(completion: Completion, wide: int) -> Content:
    label = Content.styled(one_line(completion.label).ljust(wide), "bold")
    return Content.assemble(label, "  ", Content.styled(one_line(completion.about), "dim"))
