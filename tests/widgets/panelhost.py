"""An app with nothing but the panel, its sliders and its one-line form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.containers import Vertical

from macspec.app.panel.panel import Panel, Summary
from macspec.app.panel.panelstate import PanelState
from macspec.app.panel.sliders import Sliders, Tune
from macspec.app.themes import OWN


class PanelHost(App[None]):
    """Shows one state, and keeps what the sliders ask for.

    Args:
        narrow: the sliders over the one-line form, as where there is no room for the panel.
    """

    CSS: ClassVar[str] = """
    Vertical { padding: 0 1; }
    Summary { dock: bottom; }
    """

    def __init__(
        self, state: PanelState, *, theme: str = "macspec-dark", narrow: bool = False
    ) -> None:
        super().__init__()
        self.state, self.narrow = state, narrow
        self.asked: list[Mapping[str, Any]] = []
        for own in OWN:
            self.register_theme(own)
        self.theme = theme

    def compose(self) -> ComposeResult:
        if self.narrow:
            yield Sliders()
            yield Summary()
        else:
            with Vertical():
                yield Panel()
                yield Sliders(hint="ctrl+g to tune")

    def on_ready(self) -> None:
        self.show(self.state)

    def show(self, state: PanelState) -> None:
        """Show another state."""
        self.state = state
        for widget in self.query("*").results():
            if isinstance(widget, (Panel, Sliders, Summary)):
                widget.show(state)

    @on(Tune)
    def keep(self, event: Tune) -> None:
        self.asked.append(dict(event.changes))
