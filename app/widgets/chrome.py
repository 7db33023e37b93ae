"""What frames the conversation: the title line, the welcome card and the key line."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.geometry import Size
from textual.reactive import reactive
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from macspec.plaintext import one_line

from ..chat.introduction import IN_BRIEF, PRIVATE, WHAT
from ..keys import Keys
from ..panel.draw import SIGNS, UNKNOWN, short_name
from ..panel.panelstate import PanelState

Hint = tuple[str, str]
"""A key, and what it does."""


class TitleLine(Widget):
    """A title on the left, the pair and what it does on the right."""

    DEFAULT_CSS = """
    TitleLine {
        height: 1;
        padding: 0 1;
        background: $panel;
        color: $text;
        text-wrap: nowrap;
        text-overflow: ellipsis;
    }
    """

    shown: reactive[tuple[str, str]] = reactive(("", ""))

    def show(self, title: str, state: PanelState) -> None:
        self.shown = (one_line(title), right(state))

    def render(self) -> Content:
        return line(*self.shown, self.size.width)


def right(state: PanelState) -> str:
    """The pair, or how far loading it has come."""
    sign, _ = SIGNS.get(state.activity, UNKNOWN)
    progress = "" if state.progress is None else f" {state.progress:.0%}"
    if state.activity == "loading":
        return f"{sign} loading{progress}"
    if state.target is None:
        return f"{sign} {state.activity}"
    pair = " + ".join(short_name(name) for name in (state.target, state.draft) if name)
    doing = "" if state.activity in ("ready", "writing") else f" {state.activity}{progress}"
    return f"{sign}{doing} {one_line(pair)}"


def line(left: str, right: str, width: int) -> Content:
    """Both on one line; where there is little room, the left one is cut first."""
    most = max(width - 12, width // 2)
    shown = Content(right).truncate(most, ellipsis=True)
    title = Content.styled(left, "bold").truncate(
        max(width - shown.cell_length - 2, 0), ellipsis=True
    )
    gap = width - title.cell_length - shown.cell_length
    return Content.assemble(title, " " * max(gap, 0), shown)


class Welcome(Static):
    """A card at the first run, later only the keys to start with."""

    DEFAULT_CSS = """
    Welcome {
        width: 1fr;
        height: auto;
        max-height: 100%;
        max-width: 76;
        margin: 1 2;
        color: $text-muted;
        &.-card {
            border: round $primary;
            border-title-color: $primary;
            padding: 0 1;
            color: $text;
        }
        &.-tight { margin: 0; }
    }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._cards: Sequence[Content] = ()
        """The card in its forms, the longest one first."""
        self._room = Size(0, 0)

    def show_keys(self, keys: Keys) -> None:
        self.remove_class("-card", "-tight")
        self.border_title, self._cards = None, ()
        rows = [
            (keys.shown("chats"), "continues an earlier conversation"),
            (keys.shown("models"), "chooses the models"),
            ("/", "lists the commands"),
            (keys.shown("help"), "explains the keys and the panel"),
        ]
        self.update(Content("\n").join([Content("Write a message and press Enter."), table(rows)]))

    def show_card(self, keys: Keys, proposal: Sequence[str]) -> None:
        self.add_class("-card")
        self.border_title = Content("Welcome to macspec")
        self._cards = cards(keys, proposal)
        self.fit()

    def on_mount(self) -> None:
        self.screen.screen_layout_refresh_signal.subscribe(self, self._look)

    def _look(self, screen: object) -> None:
        if self._cards and self.display and self._room != self._around:
            self.fit()

    @property
    def _around(self) -> Size:
        return self.parent.size if isinstance(self.parent, Widget) else self.size

    def fit(self) -> None:
        """Show the longest form of the card that there is room for."""
        room = self._room = self._around
        for form in self._cards:
            for tight in (False, True):
                self.set_class(tight, "-tight")
                width = min(room.width - (0 if tight else 4), 76) - 4
                rows = room.height - (2 if tight else 4)
                if form is self._cards[-1] or len(form.wrap(max(width, 1))) <= rows:
                    self.update(form)
                    return


def table(rows: Sequence[Hint]) -> Content:
    """Keys, and beside them what they do."""
    wide = max(len(key) for key, _ in rows)
    lines = [Content.assemble((key.ljust(wide), "bold"), f"  {what}") for key, what in rows]
    return Content("\n").join(lines)


def cards(keys: Keys, proposal: Sequence[str]) -> Sequence[Content]:
    """What macspec is, a real pair that fits this machine, and how to get it; then shorter."""
    how = table(
        [
            ("Enter", "set up a real pair, one on this machine first"),
            (keys.shown("models"), "choose or download any model"),
            (keys.shown("help"), "help"),
        ]
    )
    what, brief, private, *pairs = map(one_line, (WHAT, IN_BRIEF, PRIVATE, *proposal))
    return [
        Content("\n\n").join([Content(what), *map(Content, pairs), how, Content(private)]),
        Content("\n\n").join([Content(brief), Content("\n".join(pairs)), how]),
        Content("\n").join([Content(brief), *map(Content, pairs), how]),
        Content("\n").join([*map(Content, pairs[1:]), how]),
    ]


STAYS = 4.0
"""Seconds that a notice stays, plus ``READING`` per character; errors stay twice as long."""

READING = 0.05


class KeyLine(Static):
    """Shows the most important keys, and for a while notices in their place."""

    DEFAULT_CSS = """
    KeyLine {
        height: auto;
        max-height: 4;
        padding: 0 1;
        color: $text-muted;
        &.-information { color: $text; }
        &.-warning { color: $text-warning; }
        &.-error { color: $text-error; }
    }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._hints: Sequence[Hint] = ()
        self._timer: Timer | None = None
        self.notice = ""
        """The notice on screen; empty while there are keys."""

    def show(self, hints: Sequence[Hint]) -> None:
        if hints != self._hints:
            self._hints = hints
            self._draw()

    def show_notice(
        self,
        line: str,
        severity: str = "information",
        *,
        also: bool = False,
        seconds: float | None = None,
    ) -> None:
        """Show a notice, which may be untrusted, for so many seconds or as long as it takes to
        read; ``also``: below the current one."""
        self.notice = "\n".join([*([self.notice] if also and self.notice else []), one_line(line)])
        self.set_classes(f"-{severity}")
        self._draw()
        if self._timer is not None:
            self._timer.stop()
        stays = (STAYS + READING * len(self.notice)) * (2 if severity == "error" else 1)
        self._timer = self.set_timer(stays if seconds is None else seconds, self.clear_notice)

    def clear_notice(self) -> None:
        if self.notice:
            self.notice = ""
            self.set_classes("")
            self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        content = Content(self.notice) if self.notice else fitted(self._hints, self.size.width)
        one_row = "\n" not in self.notice and content.cell_length <= self.size.width - 2
        # Another layout of the whole screen is what a key would be late for.
        self.update(content, layout=not one_row or self.size.height != 1)


def fitted(hints: Sequence[Hint], width: int, rows: int = 1, key: str = "bold $text") -> Content:
    """As many hints as fit on so many lines whole; ``key``: the style of keys."""
    lines = [Content("")]
    for name, what in hints:
        hint = Content.assemble((name, key), f" {what}")
        longer = Content("  ").join([lines[-1], hint]) if lines[-1] else hint
        if longer.cell_length <= width or not lines[-1]:
            lines[-1] = longer
        elif len(lines) < rows:
            lines.append(hint)
    return Content("\n").join(lines)
