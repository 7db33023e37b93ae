"""What macspec is, and which pair fits this machine."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ..chat.firstrun import Proposal
from ..keys import Keys
from ..widgets.welcome import card
from .box import Box


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
