"""All numbers of the panel, where there is no room for it beside the conversation."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ..panel.panel import Panel
from ..panel.state import PanelState
from .box import Box

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
