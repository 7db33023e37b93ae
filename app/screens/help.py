"""What there is to read: the help, the first card, all numbers; and the palette."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.widgets import Static

from ..actions import ACTIONS, GROUPS
from ..chat.picker import Proposal
from ..keys import Keys, names
from ..panel.panel import Panel
from ..panel.state import PanelState
from ..panel.table import HELP
from ..widgets.welcome import card
from .box import Box

PROMPT = (
    ("Enter", "sends; with app.send = ctrl+j in the settings it makes a new line."),
    ("Ctrl+J, \\ Enter", "make a new line; Shift+Enter and Alt+Enter too, where they arrive."),
    ("↑ ↓", "bring earlier prompts back, from the first and the last line."),
    ("Tab", "takes a completion, or goes to the conversation and the panel."),
    ("/", "begins a command, @ the name of a file whose text is put in."),
    ("a long paste", "is shown as one name and sent whole; the editor shows all of it."),
    ("Ctrl+C twice", "leaves. What is selected is copied, a reply stops first."),
)

READING = (
    ("↑ ↓", "choose a turn; most actions then are about it."),
    ("letters", "work here: they are the keys below without ^, which is Ctrl."),
    ("Esc", "goes back to the prompt."),
)


class Help(Box[None]):
    """Keys, commands and the panel, to be read.

    Args:
        keys: which keys do what.
    """

    heading = "Help"

    DEFAULT_CSS = """
    Help {
        VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }
        Static { height: auto; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "leave", "Close"),
    ]

    def __init__(self, keys: Keys) -> None:
        super().__init__()
        self._mapping = keys

    def inside(self) -> ComposeResult:
        with VerticalScroll():
            yield Static("", id="text", markup=False)

    def on_mount(self) -> None:
        self.hint(("↑ ↓ PageUp PageDown", "read"), ("Esc", "close"))
        self.query_one(VerticalScroll).focus()

    def on_resize(self, event: Resize) -> None:
        super().on_resize(event)
        self.call_after_refresh(self._write)

    def _write(self) -> None:
        text = self.query_one("#text", Static)
        width = text.size.width
        if width:
            text.update(Content("\n").join(list(page(self._mapping, width))))

    def action_leave(self) -> None:
        self.dismiss(None)


def page(keys: Keys, width: int) -> Iterator[Content]:
    """The lines of the help, in columns where there is room for them."""
    yield from _section("While you write", PROMPT, width)
    yield from _section("While you read", READING, width)
    for group in GROUPS:
        actions = [action for action in ACTIONS if action.group == group]
        wide = max(len(names(keys, action.id)) for action in actions)
        rows = [
            (f"{names(keys, action.id):<{wide}}  /{action.slash}", action.about)
            for action in actions
        ]
        yield from _section(group, rows, width)
    yield from _section("The panel", HELP, width)


def _section(title: str, rows: Sequence[tuple[str, str]], width: int) -> Iterator[Content]:
    yield Content.styled(title, "bold $primary")
    column = min(max((len(name) for name, _ in rows), default=0) + 2, 30)
    beside = width >= column + 30
    for name, about in rows:
        room = width - column if beside else width - 2
        lines = Content(about).wrap(max(room, 10))
        first = Content.styled(name.ljust(column) if beside else name, "bold")
        if beside:
            yield Content.assemble(first, lines[0])
            lines = lines[1:]
        else:
            yield first
        for line in lines:
            yield Content.assemble(" " * (column if beside else 2), line)
    yield Content("")


class About(Box[None]):
    """The card of the first run, at any time.

    Args:
        keys: which keys do what.
        proposal: the pair for this machine.
    """

    heading = "macspec"

    DEFAULT_CSS = """
    About {
        & > #box, &.-tight > #box { max-width: 76; height: auto; max-height: 100%; }
        VerticalScroll { height: auto; max-height: 100%; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "leave", "Close")]

    def __init__(self, keys: Keys, proposal: Proposal) -> None:
        super().__init__()
        self._mapping, self._proposal = keys, proposal

    def inside(self) -> ComposeResult:
        from importlib.metadata import version

        text = Content("\n\n").join(
            [card(self._mapping, self._proposal), Content(f"Version {version('macspec')}.")]
        )
        with VerticalScroll():
            yield Static(text, markup=False)

    def on_mount(self) -> None:
        self.hint(("Esc", "close"))
        self.query_one(VerticalScroll).focus()

    def action_leave(self) -> None:
        self.dismiss(None)


PERIOD = 0.25
"""Seconds between two looks."""


class Numbers(Box[None]):
    """The live panel over the conversation.

    Args:
        state: gives the numbers as they are now.
    """

    heading = "Numbers"

    DEFAULT_CSS = """
    Numbers {
        & > #box { max-width: 64; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,N", "leave", "Close")]

    def __init__(self, state: Callable[[], PanelState]) -> None:
        super().__init__()
        self._state = state

    def inside(self) -> ComposeResult:
        yield Panel()

    def on_mount(self) -> None:
        self.hint(("Esc", "close"))
        self.set_interval(PERIOD, self._show)
        self._show()

    def _show(self) -> None:
        self.query_one(Panel).show(self._state())

    def action_leave(self) -> None:
        self.dismiss(None)
