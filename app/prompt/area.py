"""The text area of the prompt, and the document behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.document._document import Document, EditResult, Location, Selection
from textual.document._document_navigator import DocumentNavigator
from textual.document._edit import Edit
from textual.document._wrapped_document import WrappedDocument
from textual.geometry import Size
from textual.widgets import TextArea

from macspec.plaintext import NEUTRAL, SURROGATES

from ..message import Pastes, is_long

SHOWN = {
    code: "␍" if code == 0x0D else shown or "\N{REPLACEMENT CHARACTER}"
    for code, shown in {**NEUTRAL, **SURROGATES}.items()
}
"""One sign per control character, so that columns stay the same."""


class NeutralDocument(Document):
    """A document whose lines end only at newlines, so that every other character is kept.

    Its ``lines``, which are wrapped and drawn, have signs in place of control characters; ``text``
    has the characters themselves.
    """

    def __init__(self, text: str) -> None:
        self._newline = "\n"
        self._lines = text.split("\n")
        self._shown = [_neutral(line) for line in self._lines]

    @property
    def lines(self) -> list[str]:
        return self._shown

    def replace_range(self, start: Location, end: Location, text: str) -> EditResult:
        (top, left), (bottom, right) = sorted((start, end))
        replaced = self.get_text_range((top, left), (bottom, right))
        lines = self._lines
        before = lines[top][:left] if top < len(lines) else ""
        after = lines[bottom][right:] if bottom < len(lines) else ""
        new = (before + text).split("\n")
        end_location = (top + len(new) - 1, len(new[-1]))
        new[-1] += after
        lines[top : bottom + 1] = new
        self._shown[top : bottom + 1] = [_neutral(line) for line in new]
        return EditResult(end_location, replaced)

    def __getitem__(self, line_index: Any) -> Any:
        return self._shown[line_index]


def _neutral(line: str) -> str:
    return line if line.isprintable() else line.translate(SHOWN)


class PromptArea(TextArea):
    """A text area in which the name of a paste is one unit; ``take_key`` gets every key first and
    returns whether it handled it."""

    DEFAULT_CSS = """
    PromptArea {
        height: auto;
        min-height: 1;
        border: none;
        padding: 0;
        background: transparent;
        scrollbar-size-vertical: 1;
        & .text-area--cursor-line { background: transparent; }
        & .text-area--paste { color: $accent; text-style: bold; }
        & .text-area--placeholder { color: $text-muted; }
        &:light .text-area--cursor {
            color: $input-cursor-foreground;
            background: $input-cursor-background;
        }
        &:focus { border: none; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"text-area--paste"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("alt+d", "delete_word_right", "Delete right to start of word", show=False),
        # Ctrl+Z suspends, as in a shell; so undo is where a shell has it.
        Binding("ctrl+underscore", "undo", "Undo", show=False),
    ]

    def __init__(self, pastes: Pastes, take_key: Callable[[events.Key], bool]) -> None:
        self._pastes = pastes
        self._take_key = take_key
        super().__init__(highlight_cursor_line=False, compact=True)
        self.match_cursor_bracket = False

    def put(self, text: str, *, at_start: bool = False) -> None:
        """Replace everything, undoably; ``at_start``: the cursor ends up on the first line."""
        self.replace(text, (0, 0), self.document.end, maintain_selection_offset=False)
        if at_start:
            self.move_cursor((0, len(self.document[0])))

    def type(self, text: str, start: Location) -> None:
        self.replace(text, start, self.cursor_location, maintain_selection_offset=False)

    @property
    def selected_text(self) -> str:
        return self._pastes.expand(super().selected_text)

    @property
    def before_cursor(self) -> str:
        return self.get_text_range((0, 0), self.cursor_location)

    def edit(self, edit: Edit) -> EditResult:
        """As in Textual, but an edit within the name of a paste takes all of it."""
        top, bottom = self._unit(edit.top)[0], self._unit(edit.bottom)[1]
        if edit.top == edit.bottom:
            bottom = top
        if (top, bottom) != (edit.top, edit.bottom):
            edit = replace(edit, from_location=top, to_location=bottom)
        return super().edit(edit)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Its rows, up to a third of the screen, but at least three."""
        rows = super().get_content_height(container, viewport, width)
        return min(rows, max(3, viewport.height // 3))

    def get_line(self, line_index: int) -> Text:
        line = super().get_line(line_index)
        for start, end in self._pastes.places(line.plain):
            line.stylize(self.get_component_rich_style("text-area--paste"), start, end)
        return line

    def _unit(self, location: Location) -> tuple[Location, Location]:
        """Start and end of the paste around a location, or twice the location."""
        row, column = location
        if row < self.document.line_count:
            for start, end in self._pastes.places(self.document[row]):
                if start < column < end:
                    return (row, start), (row, end)
        return location, location

    def _validate_selection(self, selection: Selection) -> Selection:
        start, end = super()._validate_selection(selection)
        before = self.selection.end
        return Selection(self._beside(start, before), self._beside(end, before))

    def _beside(self, location: Location, before: Location) -> Location:
        """Where the cursor may be: it crosses the name of a paste in one step."""
        start, end = self._unit(location)
        if before >= end:
            return start
        if before <= start:
            return end
        return start if location[1] - start[1] < end[1] - location[1] else end

    def _set_document(self, text: str, language: str | None) -> None:
        self.document = NeutralDocument(text)
        self.wrapped_document = WrappedDocument(self.document, tab_width=self.indent_width)
        self.navigator = DocumentNavigator(self.wrapped_document)
        self._build_highlight_map()
        self.move_cursor((0, 0))
        self._rewrap_and_refresh_virtual_size()

    async def _on_key(self, event: events.Key) -> None:
        if self._take_key(event) or await self._act(event.key):
            event.stop()
            event.prevent_default()

    async def _act(self, key: str) -> bool:
        """Run what a key is bound to here at once.

        Textual would run it by way of the app, after characters that were typed later.
        """
        for binding in self._bindings.key_to_bindings.get(key, ()):
            if await self.app.run_action(binding.action, self):
                return True
        return False

    async def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        self.paste(event.text)

    def action_paste(self) -> None:
        self.paste(self.app.clipboard)

    def paste(self, text: str) -> None:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if not text:
            return
        shown = self._pastes.fold(text) if is_long(text) else text
        if result := self._replace_via_keyboard(shown, *self.selection):
            self.move_cursor(result.end_location)
            self.focus()
