"""The prompt: where messages are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from textual import events, on
from textual.app import ComposeResult, SuspendNotSupported
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static, TextArea

from macspec.plaintext import one_line
from macspec.worker import PromptTokens

from .. import outside
from ..message import Pastes, Recall, with_files
from ..outside import EditorError
from ..slash import Completion
from .area import PromptArea
from .popup import KEYS, Popup

NEW_LINE = ("shift+enter", "alt+enter", "ctrl+enter", "shift+\r", "alt+\r", "ctrl+\r")
"""Keys for a new line where the terminal reports them; the last three are xterm's."""

LOW = 16
"""Rows of the screen below which the prompt has no border."""


@dataclass(frozen=True, slots=True)
class Editing:
    """An earlier message that is being edited, and the text to restore afterwards."""

    turn_id: int
    original: str
    unsent: str


class Prompt(Vertical):
    """The prompt: several lines, history, folded pastes, completions. Of enter and ctrl+j, one is
    the ``send_key``, the other one makes a new line."""

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
        & > #queue {
            display: none;
            height: auto;
            max-height: 4;
            color: $text-muted;
            text-wrap: nowrap;
            text-overflow: ellipsis;
        }
        &.-queued > #queue { display: block; }
        border-subtitle-color: $text-muted;
        &.-too-long { border-subtitle-color: $text-error; }
        &.-editing > #editing { display: block; }
    }
    """

    @dataclass
    class Submitted(Message):
        """A message or slash command was sent; the prompt is empty again."""

        text: str
        """The text with pastes expanded."""
        message: Callable[[], tuple[str, Sequence[str]]]
        """As ``with_files``, for what was typed."""
        turn_id: int | None = None
        """The message that it replaces; None: it is a new one."""

    class Asked(Message):
        """A question mark was typed into the empty prompt: the user wants help."""

    class Blank(Message):
        """The empty prompt was sent."""

    class Changed(Message):
        """The text of the prompt has changed."""

    def __init__(self, *, send_key: str = "enter") -> None:
        super().__init__()
        self.send_key = send_key
        self._pastes = Pastes()
        self._recall = Recall()
        self._edited: Editing | None = None
        self._aside = ""
        """What was cleared with Ctrl+C, until something else is typed."""
        self.queue: list[Prompt.Submitted] = []
        """Messages that wait for the end of a reply, the first one first."""
        self._screen_size = Size(0, 0)
        self.area = PromptArea(self._pastes, self._take_key)
        self.area.placeholder = "Ask anything   / commands   @ files   ? keys"
        self.popup = Popup(self._accept)

    def compose(self) -> ComposeResult:
        yield self.popup
        yield Static("", id="queue", markup=False)
        yield Static("", id="editing", markup=False)
        with Horizontal(id="line"):
            yield Static("❯ ", id="sign", markup=False)
            yield self.area

    @property
    def value(self) -> str:
        return self._pastes.expand(self.area.text)

    @property
    def editing(self) -> bool:
        return self._edited is not None

    @property
    def unsent(self) -> str:
        """Everything typed but not sent, to be kept when macspec quits."""
        texts = self._recall.unsent(self.value)
        if self._edited is not None:
            changed = [text for text in texts if text != self._edited.original]
            texts = [self._edited.unsent, *changed]
        texts = [*(each.text for each in self.queue), *texts]
        texts = texts if any(text.strip() for text in texts) else [self._aside]
        return "\n\n".join(text for text in texts if text.strip())

    def set_history(self, sent: Iterable[str]) -> None:
        """Set what Up brings back, oldest first; the text stays."""
        self._recall = Recall(sent)

    def load(self, text: str) -> None:
        self._recall.rest()
        self._show(text)

    def give_back(self, text: str) -> None:
        """Put a text that could not be sent in front of what was typed since."""
        self._show("\n\n".join(part for part in (text, self.value) if part.strip()))

    def put_aside(self) -> bool:
        """Clear the prompt; Up brings its text back. Returns whether there was any."""
        text = self.value
        if not text.strip() or self.editing:
            return False
        self._recall.add(text)
        self._show("")
        self._aside = text
        return True

    def hold(self, message: Submitted) -> None:
        """Queue a message; Up in the empty prompt takes it back."""
        self._show_queue([*self.queue, message])

    def next_held(self) -> Submitted:
        """The message to send next."""
        first, *rest = self.queue
        self._show_queue(rest)
        return first

    def give_back_queue(self) -> None:
        """Put what is queued into the prompt, to be sent or not."""
        texts = [each.text for each in self.queue]
        self._show_queue([])
        self.give_back("\n\n".join(texts))

    def _show_queue(self, queue: Sequence[Submitted]) -> None:
        self.queue = list(queue)
        lines = [f"queued  {one_line(each.text)}" for each in queue[:3]]
        if len(queue) > len(lines):
            lines.append(f"        and {len(queue) - len(lines)} more")
        elif lines:
            lines.append("        sent after this reply; ↑ takes the last one back")
        self.query_one("#queue", Static).update(Content("\n").join(map(Content, lines)))
        self.set_class(bool(queue), "-queued")

    def show_count(self, count: PromptTokens | None) -> None:
        """Show how long the typed message is, and what the context has left for it."""
        text = ""
        if count is not None and count.too_long:
            text = f"{count.least:,} of {count.context:,} tokens: too long"
        elif count is not None:
            more = "; the oldest turns will be left out" if count.message > count.left else ""
            text = f"{count.message:,} of {count.left:,} tokens{more}"
        self.set_class(count is not None and count.too_long, "-too-long")
        self.border_subtitle = Content(text)

    def message(self) -> str:
        """What would be sent; FileError: a file cannot be included."""
        return with_files(self.area.text, self._pastes.expand)[0]

    def edit(self, turn_id: int, text: str, what: str, *, changed: bool = False) -> None:
        """Edit an earlier message, such as "message 3"; the current text comes back afterwards.
        ``changed``: the text was typed already, and is not the original."""
        unsent = self._edited.unsent if self._edited else self.unsent
        self._recall.rest()
        self._edited = Editing(turn_id, "" if changed else text, unsent)
        send = "Enter" if self.send_key == "enter" else "Ctrl+J"
        self.query_one("#editing", Static).update(f"editing {what} · {send} resends · Esc cancels")
        self.add_class("-editing")
        self._show(text)
        self.area.focus()

    def focus(self, scroll_visible: bool = True) -> Self:
        self.area.focus(scroll_visible)
        return self

    def send(self) -> None:
        text, shown = self.value, self.area.text
        if not text.strip():
            self.post_message(self.Blank())
            return
        message = partial(with_files, shown, self._pastes.expand)
        turn_id = None
        if self._edited is not None:
            turn_id = self._edited.turn_id
            self._leave_editing(self._edited)
        else:
            self.area.load_text("")
        self.post_message(self.Submitted(text, message, turn_id))
        self._recall.add(text)
        self._look_up()

    def open_editor(self) -> None:
        """Open the text in the user's editor and wait for it; EditorError: no text came back."""
        try:
            with self.app.suspend():  # Nothing may raise here: the terminal would not be restored.
                outcome = outside.attempt(self.value)
        except SuspendNotSupported:
            raise EditorError("this terminal cannot be handed to an editor") from None
        if isinstance(outcome, EditorError):
            raise outcome
        self._show(outcome)
        self.focus()

    def _leave_editing(self, edited: Editing) -> None:
        self._edited = None
        self._recall.rest()
        self.remove_class("-editing")
        self.area.load_text("")
        self._show(edited.unsent)

    def stop_editing(self) -> None:
        if (edited := self._edited) is None:
            return
        for text in self._recall.unsent(self.value):
            if text != edited.original:
                self._recall.add(text)
        self._leave_editing(edited)

    def _show(self, text: str, *, at_start: bool = False) -> None:
        self.area.put(self._pastes.folded(text), at_start=at_start)

    def _take_key(self, event: events.Key) -> bool:
        key, area = event.key, self.area
        if key in KEYS:
            self._look_up()  # The last key may have opened the list.
            if self.popup.take_key(key):
                return True
        if key == self.send_key and key == "ctrl+j":
            self.send()
        elif key == "enter" and self.send_key == "enter":
            self._enter()
        elif key in ("enter", "ctrl+j", *NEW_LINE):
            area.type("\n", area.selection.start)
        elif key == "up" and self.queue and not area.text and not self.editing:
            *rest, last = self.queue
            self._show_queue(rest)
            self._show(last.text)
        elif key == "up" and area.navigator.is_first_wrapped_line(area.cursor_location):
            return self._walk(self._recall.step(self.value, -1), at_start=True)
        elif key == "down" and area.navigator.is_last_wrapped_line(area.cursor_location):
            return self._walk(self._recall.step(self.value, 1))
        elif key == "question_mark" and not area.text and not self.editing:
            self.post_message(self.Asked())
        elif key == "escape" and self.editing:
            self.stop_editing()
        else:
            return False
        return True

    def _enter(self) -> None:
        row, column = self.area.cursor_location
        line = self.area.document[row]
        if line.endswith("\\") and column == len(line) and self.area.selection.is_empty:
            self.area.type("\n", (row, column - 1))
        else:
            self.send()

    def _walk(self, text: str | None, *, at_start: bool = False) -> bool:
        if text is not None:
            self._show(text, at_start=at_start)
        return text is not None

    def _accept(self, completion: Completion) -> None:
        row, column = self.area.cursor_location
        typed = len(self.area.before_cursor) - completion.start
        self.area.type(completion.text, (row, column - typed))

    @on(TextArea.Changed)
    def _text_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        if self.area.text and self.value != self._aside:
            self._aside = ""
        self.post_message(self.Changed())

    @on(TextArea.SelectionChanged)
    def _cursor_moved(self, event: TextArea.SelectionChanged) -> None:
        event.stop()
        self._look_up()

    def _look_up(self) -> None:
        self.popup.look_up(self.area.before_cursor if self.area.selection.is_empty else "")

    def on_mount(self) -> None:
        self.screen.screen_layout_refresh_signal.subscribe(self, self._fit, immediate=True)

    def _fit(self, screen: Screen[object]) -> None:
        if screen.size != self._screen_size:
            self._screen_size = screen.size
            self.set_class(screen.size.height < LOW, "-tight")
            self.area.refresh(layout=True)
