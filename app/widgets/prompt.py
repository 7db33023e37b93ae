"""Where the next message is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import OptionList, Static, TextArea

from ..completion import Complete, nothing
from ..pastes import UNWIELDY, Pastes
from ..recall import Recall
from .popup import Popup
from .promptarea import PromptArea

NEW_LINE = ("shift+enter", "alt+enter", "ctrl+enter", "shift+\r", "alt+\r", "ctrl+\r")
"""Keys for a new line, where a terminal tells them from Enter; the last three as xterm does."""


@dataclass(frozen=True, slots=True)
class Editing:
    """An earlier message is changed, and this is how it goes back."""

    turn_id: int
    original: str
    unsent: str


class Prompt(Vertical):
    """The prompt: several lines, history, folded pastes, completions.

    Attributes:
        complete: gives completions of the text before the cursor.
        send_key: enter or ctrl+j; the other one makes a new line.
    """

    DEFAULT_CSS = """
    Prompt {
        height: auto;
        border: round $border-blurred;
        padding: 0 1;
        &:focus-within { border: round $border; }
        &.-tight { border: none; padding: 0; }
        & > #line { height: auto; }
        & #sign { width: 2; height: 1; color: $primary; text-style: bold; }
        & > #editing { display: none; height: 1; color: $warning; text-overflow: ellipsis; }
        &.-editing > #editing { display: block; }
    }
    """

    @dataclass
    class Submitted(Message):
        """A new message, or a slash command; the prompt is empty again."""

        text: str

    @dataclass
    class Edited(Message):
        """An earlier message as it shall be now."""

        turn_id: int
        text: str

    @dataclass
    class Cancelled(Message):
        """An earlier message stays as it was."""

        turn_id: int

    class Changed(Message):
        """What stands in the prompt is not what stood there."""

    def __init__(self, *, send_key: str = "enter", id: str | None = None) -> None:
        super().__init__(id=id)
        self.complete: Complete = nothing
        self.send_key = send_key
        self._pastes = Pastes()
        self._recall = Recall()
        self._edited: Editing | None = None
        self._dismissed: int | None = None
        self.area = PromptArea(self._pastes, self._take_key)
        self._popup = Popup()

    def compose(self) -> ComposeResult:
        yield self._popup
        yield Static("", id="editing", markup=False)
        with Horizontal(id="line"):
            yield Static("❯ ", id="sign", markup=False)
            yield self.area

    @property
    def value(self) -> str:
        """The text, with pastes whole."""
        return self._pastes.expand(self.area.text)

    @property
    def editing(self) -> bool:
        """Whether an earlier message is being changed."""
        return self._edited is not None

    @property
    def unsent(self) -> str:
        """All that was typed and not sent; what to keep when macspec ends."""
        texts = [self.value]
        if self._edited is not None:
            changed = self.value != self._edited.original
            texts = [self._edited.unsent, *([self.value] if changed else [])]
        elif self._recall.walking:
            texts = [self._recall.unsent]
        return "\n\n".join(text for text in texts if text.strip())

    def set_history(self, sent: Iterable[str]) -> None:
        """What Up brings back, oldest first; what is being written stays."""
        self._recall = Recall(sent)

    def load(self, text: str) -> None:
        """Put a whole text in, instead of what is there; undo brings that back."""
        self._show(text)

    def give_back(self, text: str) -> None:
        """Put a text that could not be sent before what was typed since."""
        self._show("\n\n".join(part for part in (text, self.value) if part.strip()))

    def edit(self, turn_id: int, text: str, what: str) -> None:
        """Change an earlier message; what was being written comes back afterwards.

        Args:
            what: the message, such as "message 3".
        """
        unsent = self._edited.unsent if self._edited else self.value
        self._edited = Editing(turn_id, text, unsent)
        send = "Enter" if self.send_key == "enter" else "Ctrl+J"
        self.query_one("#editing", Static).update(
            f"editing {what} · {send} resends · Esc leaves it"
        )
        self.add_class("-editing")
        self._show(text)
        self.area.focus()

    def focus(self, scroll_visible: bool = True) -> Self:
        self.area.focus(scroll_visible)
        return self

    def send(self) -> None:
        """Send what stands there, if anything does."""
        text = self.value
        if not text.strip():
            return
        if self._edited is not None:
            turn_id = self._edited.turn_id
            self._leave_editing()
            self.post_message(self.Edited(turn_id, text))
        else:
            self.area.load_text("")
            self.post_message(self.Submitted(text))
        self._recall.add(text)

    def _leave_editing(self) -> None:
        editing = self._edited
        assert editing is not None
        self._edited = None
        self.remove_class("-editing")
        self.area.load_text("")
        self._show(editing.unsent)

    def _cancel_editing(self) -> None:
        editing = self._edited
        assert editing is not None
        if self.value != editing.original:
            self._recall.keep(self.value)
        self._leave_editing()
        self.post_message(self.Cancelled(editing.turn_id))

    def _show(self, text: str, *, at_start: bool = False) -> None:
        shown = self._pastes.folded(text)
        if len(shown) > UNWIELDY:
            shown = self._pastes.fold(text)
        self.area.put(shown, at_start=at_start)

    def _take_key(self, event: events.Key) -> bool:
        key = event.key
        if self._popup.open and self._take_popup_key(key):
            return True
        if key == self.send_key and key == "ctrl+j":
            self.send()
        elif key == "enter" and self.send_key == "enter":
            self._enter()
        elif key in ("enter", "ctrl+j", *NEW_LINE):
            self._new_line()
        elif key == "up" and self.area.on_first_row:
            return self._walk(self._recall.older(self.value), at_start=True)
        elif key == "down" and self.area.on_last_row:
            return self._walk(self._recall.newer(self.value))
        elif key == "escape" and self.editing:
            self._cancel_editing()
        else:
            return False
        return True

    def _enter(self) -> None:
        row, column = self.area.cursor_location
        if column and column == len(self.area.document[row]) and self._ends_in_backslash(row):
            self.area.type("\n", (row, column - 1))
        else:
            self.send()

    def _ends_in_backslash(self, row: int) -> bool:
        return self.area.document[row].endswith("\\") and self.area.selection.is_empty

    def _new_line(self) -> None:
        self.area.type("\n", self.area.selection.start)

    def _walk(self, text: str | None, *, at_start: bool = False) -> bool:
        if text is not None:
            self._show(text, at_start=at_start)
        return text is not None

    def _take_popup_key(self, key: str) -> bool:
        if key in ("up", "down"):
            self._popup.walk(-1 if key == "up" else 1)
        elif key == "tab" or (key == "enter" and self._popup.chosen):
            self._accept()
        elif key == "escape":
            completion = self._popup.completion
            self._dismissed = completion.start if completion else None
            self._popup.show(())
        else:
            return False
        return True

    def _accept(self) -> None:
        completion = self._popup.completion
        if completion is None:
            return
        row, column = self.area.cursor_location
        typed = len(self.area.before_cursor) - completion.start
        self.area.type(completion.text, (row, column - typed))

    @on(TextArea.Changed)
    def _text_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        self.post_message(self.Changed())

    @on(TextArea.SelectionChanged)
    def _cursor_moved(self, event: TextArea.SelectionChanged) -> None:
        event.stop()
        found = self.complete(self.area.before_cursor) if self.area.selection.is_empty else ()
        if found and found[0].start == self._dismissed:
            found = ()
        elif not found:
            self._dismissed = None
        self._popup.show(found)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._accept()
        self.area.focus()

    def on_resize(self) -> None:
        self.set_class(self.app.size.height < 16, "-tight")
