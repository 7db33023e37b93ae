"""Completions in a list above the prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from textual.content import Content
from textual.geometry import Spacing
from textual.widget import Widget
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from macspec.plaintext import one_line

from ..slash import Complete, Completion

KEYS = ("up", "down", "tab", "enter", "escape")
"""Keys it takes while open."""


BRIEF = 90
"""Columns of the screen below which commands are listed without their arguments."""


class Popup(OptionList, can_focus=False):
    """Shows completions above the prompt, which passes keys on; the chosen one is accepted."""

    DEFAULT_CSS = """
    Popup {
        display: none;
        overlay: screen;
        constrain: inside none;
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
        """Handle a key if it is meant for the list; return whether it was. Enter on a command
        takes the command and is handled on: it is sent."""
        if not self.open:
            return False
        completion = self._completions[self.highlighted or 0]
        if key in ("up", "down"):
            self._walked = True
            (self.action_cursor_up if key == "up" else self.action_cursor_down)()
        elif key == "tab" or (key == "enter" and self._chosen(completion)):
            self._accept(completion)
            return key == "tab" or not completion.whole
        elif key == "escape":
            self._dismissed = completion.start
            self._show(())
        else:
            return False
        return True

    def _chosen(self, completion: Completion) -> bool:
        """Whether Enter means the highlighted completion, not the text as it is typed."""
        typed = self._looked_up[completion.start :]
        other = typed not in ("/", "@") and completion.text.rstrip() != typed
        return self._walked or (other and completion.by_enter)

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
        brief = self.app.size.width < BRIEF
        if brief and all(each.whole or each.label.startswith("/") for each in completions):
            wide = max((cell_len(_label(each, brief)) for each in completions), default=0)
        self.set_options([Option(_row(each, wide, brief)) for each in completions])
        self.highlighted = 0 if completions and completions[0].by_enter else None
        rows = min(len(completions), 8, max(2, self.app.size.height // 3))
        frame = self.parent.styles.gutter if isinstance(self.parent, Widget) else Spacing()
        self.styles.max_height, self.styles.width = rows, self.app.size.width
        self.styles.padding = (0, max(frame.right, 1), 0, max(frame.left, 1))
        self.styles.offset = (-frame.left, -rows - frame.top)


def _label(completion: Completion, brief: bool) -> str:
    """What is listed; where there is little room, a command without its argument."""
    label = one_line(completion.label)
    return label.split(" ")[0] if brief and label.startswith("/") else label


def _row(completion: Completion, wide: int, brief: bool) -> Content:
    label, about = _label(completion, brief), one_line(completion.about)
    gap = " " * (wide - cell_len(label) + 2)
    return Content.assemble(Content.styled(label, "bold"), gap, about)
