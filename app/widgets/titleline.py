"""The first line: which conversation this is, and which pair answers."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from macspec.plaintext import one_line

from ..panel.state import PanelState

SIGNS = {"ready": "●", "writing": "▶", "reading": "▷", "loading": "◌", "waiting": "◌"}
"""What the engine does, readable without colours; ``no model`` and the rest have ○."""


class TitleLine(Static):
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

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._shown = ("", "")

    def show(self, title: str, state: PanelState) -> None:
        """Show a conversation's title and a snapshot; only what changed costs anything."""
        shown = (one_line(title), right(state))
        if shown != self._shown:
            self._shown = shown
            self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self.update(line(*self._shown, self.size.width), layout=False)


def right(state: PanelState) -> str:
    """The pair, or how far it is loaded."""
    sign = SIGNS.get(state.activity, "○")
    progress = "" if state.progress is None else f" {state.progress:.0%}"
    if state.activity == "loading":
        return f"{sign} loading{progress}"
    if state.target is None:
        return f"{sign} {state.activity}"
    pair = state.target if state.draft is None else f"{state.target} + {state.draft}"
    doing = "" if state.activity in ("ready", "writing") else f" {state.activity}{progress}"
    return f"{sign}{doing} {one_line(pair)}"


def line(left: str, right: str, width: int) -> Content:
    """Both in one line; where there is little room, the left one is cut, then the right one."""
    most = max(width - 12, width // 2)
    shown = Content(right).truncate(most, ellipsis=True)
    title = Content.styled(left, "bold").truncate(
        max(width - shown.cell_length - 2, 0), ellipsis=True
    )
    gap = width - title.cell_length - shown.cell_length
    return Content.assemble(title, " " * max(gap, 0), shown)
