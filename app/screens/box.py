"""Boxes over the chat: their frame, questions, and searchable lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeVar

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Resize
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.style import Style
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ..widgets.chrome import fitted

Result = TypeVar("Result")
Row = TypeVar("Row")

TIGHT = (76, 26)
"""Columns and rows below which a box fills the screen."""

SHORT = 16
"""Rows below which there are no blank lines."""


class Box(ModalScreen[Result]):
    """A framed box with a title, a status line and key hints."""

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
        #status { height: auto; max-height: 4; color: $text; display: none; }
        #status.-warning { color: $text-warning; }
        #status.-error { color: $text-error; }
        &.-tight #status { max-height: 2; &.-error { max-height: 4; } }
        #hint { height: auto; color: $text-muted; text-wrap: nowrap; }
    }
    """

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = Content(self.heading)
            yield from self.inside()
            yield Static("", id="status", markup=False)
            yield Static("", id="hint", markup=False)

    def inside(self) -> ComposeResult:
        """The widgets in the box, above its last lines."""
        yield from ()

    def on_resize(self, event: Resize) -> None:
        columns, rows = TIGHT
        self.set_class(event.size.width < columns or event.size.height < rows, "-tight")
        self.set_class(event.size.height < SHORT, "-short")
        self.call_after_refresh(self._lay_out)

    def hint(self, *keys: tuple[str, str]) -> None:
        """Show which keys work now and what they do, most important first."""
        self._keys = keys
        self._lay_out()

    def _lay_out(self) -> None:
        """Fit as many key hints as possible into the last lines, without breaking one."""
        it = self.query_one("#hint", Static)
        rows = 2 if self.has_class("-tight") else 3
        it.update(fitted(self._keys, it.size.width or self.size.width, rows, key="bold"))

    def status(self, line: str, severity: str = "") -> None:
        """Show a neutral line below; an empty one hides it."""
        status = self.query_one("#status", Static)
        status.set_class(severity == "warning", "-warning")
        status.set_class(severity == "error", "-error")
        status.display = bool(line)
        status.update(Content(line))


class Question(Box[Result]):
    """A small box with a question, which is neutral text."""

    DEFAULT_CSS = """
    Question {
        & > #box, &.-tight > #box { width: 100%; max-width: 76; height: auto; max-height: 100%; }
        #question { height: auto; margin-bottom: 1; }
    }
    """

    def __init__(self, question: str, *, title: str) -> None:
        super().__init__()
        self._question, self.heading = question, title

    def inside(self) -> ComposeResult:
        yield Static(self._question, id="question", markup=False)


class Ask(Question[str | None]):
    """Asks for a line of text; the result is None if cancelled.

    Args:
        value: initial text.
        check: returns what is wrong with an answer, in one line; empty: nothing.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Cancel")]

    def __init__(
        self,
        question: str,
        value: str,
        *,
        title: str,
        check: Callable[[str], str] = lambda answer: "",
    ) -> None:
        super().__init__(question, title=title)
        self._value, self._check = value, check

    def inside(self) -> ComposeResult:
        yield from super().inside()
        yield Input(self._value, compact=True, select_on_focus=False)

    def on_mount(self) -> None:
        self.hint(("Enter", "save"), ("Esc", "cancel"))

    def on_input_changed(self, event: Input.Changed) -> None:
        self.status("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if wrong := self._check(event.value):
            self.status(wrong, "error")
        else:
            self.dismiss(event.value)


class Confirm(Question[bool]):
    """Asks yes or no: ``y`` and Enter are yes, which ``yes`` names; ``n`` and Esc no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "dismiss(True)", "Yes"),
        Binding("n,escape", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str, *, title: str, yes: str) -> None:
        super().__init__(question, title=title)
        self._yes = yes

    def on_mount(self) -> None:
        self.hint(("y", self._yes), ("n", "no"))


MUTED = "$text-muted"
"""The style of details beside a name."""


class Search(Input):
    """The search field; Down goes to the list."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("down", "app.focus_next", show=False)]


class Rows(OptionList):
    """The list; a row may have several lines. Up on the first one goes back to the search."""

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
        """The selected row has one colour: shades cannot be read on its background."""
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


class ListBox(Box[Result], Generic[Result, Row]):
    """A search field above a list of rows."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("slash", "search", "Search")]

    letters: tuple[str, ...] = ()
    """Actions of letters, which are text while the search has the focus."""
    placeholder = ""
    """In the empty search field."""
    listed: Sequence[Row] = ()

    def __init__(self, query: str = "") -> None:
        super().__init__()
        self._query = query

    def inside(self) -> ComposeResult:
        yield Search(self._query, placeholder=self.placeholder, compact=True, select_on_focus=False)
        yield Rows(markup=False, compact=True)

    def line(self, row: Row) -> Content:
        """A row as it is shown."""
        return Content(str(row))

    @property
    def chosen(self) -> Row | None:
        """The highlighted row."""
        at = self.query_one(Rows).highlighted
        return None if at is None or at >= len(self.listed) else self.listed[at]

    @property
    def searching(self) -> bool:
        """Whether the search has the focus."""
        return any(it.has_focus for it in self.query(Search))  # While it closes there is none.

    def show_rows(self, rows: Sequence[Row], place: int) -> None:
        """Show rows, and highlight the one at a place."""
        self.listed = rows
        it = self.query_one(Rows)
        it.set_options([self.line(row) for row in rows])
        it.highlighted = place if rows else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (action in ("search", *self.letters) and self.searching)

    def action_search(self) -> None:
        self.query_one(Search).focus()
