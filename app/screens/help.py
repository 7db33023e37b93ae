"""What there is to read: help, about and numbers; and the palette of all commands."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.widgets import Static

from ..actions import ACTIONS, BY_GROUP, Action
from ..keys import Keys, everywhere, indented, names, shown
from ..panel.panel import Panel
from ..panel.panelrows import HELP
from ..panel.panelstate import PanelState
from ..widgets.chrome import cards
from .box import Box

PERIOD = 0.25
"""Seconds between two updates of the numbers."""

CHOICES = ("method", "rule", "depth", "theme", "think")
"""Actions whose choices are entries of the palette too."""

PROMPT = (
    ("Enter", "Send, or start a new line if the setting app.send is ctrl+j."),
    (
        "Ctrl+J, \\ Enter",
        "Start a new line, as Shift+Enter and Alt+Enter do on some terminals.",
    ),
    ("↑ ↓", "Recall earlier prompts, from the first and the last line."),
    ("Enter, busy", "Queue the message; ↑ takes it back, Esc stops the reply and takes all back."),
    ("Tab", "Accept a completion, or go to the conversation and the panel."),
    ("/", "Start a command; @ starts the name of a file to include."),
    ("A long paste", "Collapsed to a label and sent in full; the editor shows all of it."),
    (
        "Ctrl+C twice",
        "Quit; the first copies a selection, stops a reply, or clears the prompt.",
    ),
)

READING = (
    ("↑ ↓", "Select a turn; most commands then apply to it."),
    ("Letters", "The keys below without ^ (Ctrl) work here."),
    ("Esc", "Go back to the prompt."),
)


class Reader(Box[None]):
    """Something to read, and to close."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "dismiss", "Close")]

    def on_mount(self) -> None:
        self.hint(("↑ ↓ PageUp PageDown", "scroll"), ("Esc", "close"))


class Help(Reader):
    """Keys, commands and the panel."""

    heading = "Help"

    DEFAULT_CSS = """
    Help {
        VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
        Static { height: auto; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark", "dismiss", "Close")]

    def __init__(self, keys: Keys) -> None:
        super().__init__()
        self._mapping = keys

    def inside(self) -> ComposeResult:
        with VerticalScroll():
            yield Static("", id="text", markup=False)

    def on_resize(self, event: Resize) -> None:
        super().on_resize(event)
        self.call_after_refresh(self._write)

    def _write(self) -> None:
        text = self.query_one("#text", Static)
        width = text.size.width
        if width:
            text.update(Content("\n").join(list(page(self._mapping, width))))


class About(Reader):
    """What macspec is, and which pair fits this machine."""

    heading = "macspec"

    DEFAULT_CSS = """
    About {
        & > #box, &.-tight > #box { max-width: 76; height: auto; max-height: 100%; }
        VerticalScroll { height: auto; max-height: 100%; }
    }
    """

    def __init__(self, keys: Keys, proposal: Sequence[str]) -> None:
        super().__init__()
        self._mapping, self._proposal = keys, proposal

    def inside(self) -> ComposeResult:
        from importlib.metadata import version

        text = Content("\n\n").join(
            [cards(self._mapping, self._proposal)[0], Content(f"Version {version('macspec')}.")]
        )
        with VerticalScroll():
            yield Static(text, markup=False)


class Numbers(Reader):
    """The whole live panel over the conversation; ``state`` gives the numbers as they are now."""

    heading = "Statistics"

    DEFAULT_CSS = """
    Numbers {
        & > #box { max-width: 64; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("N", "dismiss", "Close")]

    def __init__(self, state: Callable[[], PanelState]) -> None:
        super().__init__()
        self._state = state

    def inside(self) -> ComposeResult:
        yield Panel()

    def on_mount(self) -> None:
        self.set_interval(PERIOD, self._show)
        self._show()

    def _show(self) -> None:
        for panel in self.query(Panel):  # There is none while it is being closed.
            panel.show(self._state())


def page(keys: Keys, width: int) -> Iterator[Content]:
    """The lines of the help, in columns where there is room for them."""
    yield from _section("While you write", PROMPT, width)
    yield from _section("While you read", READING, width)
    for group, actions in BY_GROUP.items():
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
        if not beside:
            yield from (Content.styled(line, "bold") for line in textwrap.wrap(name, width))
        begin = name.ljust(column) if beside else "  "
        first, *rest = indented(begin, about, max(width, 12))
        yield Content(first).stylize("bold", 0, len(begin))
        yield from map(Content, rest)
    yield Content("")


class Entries(Provider):
    """Actions, and what some of them can be set to; the app does them."""

    actions = tuple(action for action in ACTIONS if action.id != "palette")

    @property
    def _app(self) -> Any:
        return self.app

    async def discover(self) -> Hits:
        situation = self._app.conversation.situation
        for action in sorted(self.actions, key=lambda it: it.refusal(situation) is not None):
            yield DiscoveryHit(
                self._entry(action), self._command(action), action.title, self._about(action)
            )

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action in self.actions:
            named = (action.title, action.slash, action.id.replace("_", " "))
            if (score := max(map(matcher.match, named))) > 0:
                entry = self._entry(action, matcher.highlight(action.title))
                command, about = self._command(action), self._about(action)
                yield Hit(score, entry, command, action.title, about)
            for text, value, about in self._choices(action):
                if (score := matcher.match(text)) > 0:
                    command = self._command(action, value)
                    yield Hit(score, matcher.highlight(text), command, text, about or None)

    def _choices(self, action: Action) -> Iterator[tuple[str, str, str]]:
        if action.id in CHOICES and action.choices is not None:
            for value, about in action.choices(self._app.commands):
                yield f"{action.title}: {value}", value, about

    def _entry(self, action: Action, title: Content | None = None) -> Content:
        keys = [shown(key) for key in self._app.keys.of(action.id) if everywhere(key)]
        key = keys[0] if keys else f"/{action.slash}"  # A plain key would be typed in the prompt.
        return Content.assemble(title or Content(action.title), "  ", (key, "$text-muted"))

    def _about(self, action: Action) -> str:
        refusal = action.refusal(self._app.conversation.situation)
        return action.about if refusal is None else f"Not now: {refusal}."

    def _command(self, action: Action, argument: str = "") -> partial[None]:
        return partial(self._app.do, action.id, argument)
