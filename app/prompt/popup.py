"""Completions in a list above the prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from macspec.plaintext import one_line

from ..slash import Complete, Completion

KEYS = ("up", "down", "tab", "enter", "escape")
"""Keys it takes while open; Enter only after the arrow keys."""


class Popup(OptionList, can_focus=False):
    """Shows completions above the prompt, which passes keys on; the chosen one is accepted."""

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
        & > .option-list--option-highlighted {
            color: $block-cursor-foreground;
            background: $block-cursor-background;
            text-style: $block-cursor-text-style;
        }
    }
    """

    def __init__(self, accept: Callable[[Completion], None]) -> None:
        super().__init__(compact=True, markup=False)
        self.complete: Complete = lambda typed: ()
        """Completes the text before the cursor."""
        self._accept = accept
        self._completions: Sequence[Completion] = ()
        self._looked_up = ""
        self._walked = False
        self._dismissed: int | None = None
        """Where the completions that Esc closed begin."""

    @property
    def open(self) -> bool:
        return bool(self._completions)

    def look_up(self, typed: str) -> None:
        if typed == self._looked_up:
            return
        self._looked_up = typed
        found = self.complete(typed) if typed else ()
        if not found:
            self._dismissed = None
        elif found[0].start == self._dismissed:
            found = ()
        self._show(found)

    def take_key(self, key: str) -> bool:
        """Handle a key if it is meant for the list; return whether it was."""
        if not self.open or self.highlighted is None:
            return False
        completion = self._completions[self.highlighted]
        if key in ("up", "down"):
            self._walked = True
            (self.action_cursor_up if key == "up" else self.action_cursor_down)()
        elif key == "tab" or (key == "enter" and self._walked):
            self._accept(completion)
        elif key == "escape":
            self._dismissed = completion.start
            self._show(())
        else:
            return False
        return True

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._accept(self._completions[event.option_index])

    def _show(self, completions: Sequence[Completion]) -> None:
        self._walked = False
        if list(completions) == list(self._completions):
            return
        self._completions = completions
        self.set_class(bool(completions), "-open")
        wide = max((cell_len(one_line(each.label)) for each in completions), default=0)
        self.set_options([Option(_row(each, wide)) for each in completions])
        self.highlighted = 0 if completions else None
        rows = min(len(completions), 8, max(2, self.app.size.height // 3))
        frame = self.parent.styles.gutter.top if isinstance(self.parent, Widget) else 0
        self.styles.max_height = rows
        self.styles.offset = (0, -rows - frame)


def _row(completion: Completion, wide: int) -> Content:
    label, about = one_line(completion.label), one_line(completion.about)
    gap = " " * (wide - cell_len(label) + 2)
    return Content.assemble(Content.styled(label, "bold"), gap, about)
