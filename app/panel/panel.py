"""The live panel."""

from __future__ import annotations

from textual import events
from textual.content import Content

from macspec.plaintext import one_line

from ..widgets.lined import Lined
from .hysteresis import settled
from .panelrows import named, panel
from .state import PanelState
from .tooltips import EXPLAINED


def explained(block: str, state: PanelState) -> str:
    """What a block shows, and all of what it may have cut."""
    whole = {
        "pair": " + ".join(name for name in (state.target, state.draft) if name),
        "why": state.why,
        "power": state.energy_reason,
        "joules": state.energy_reason,
        "kernels": state.kernels,
        "trust head": state.self_test,
    }.get(block, "")
    sentence = EXPLAINED[block]
    return f"{sentence}\n\n{one_line(whole)}" if whole else sentence


class Panel(Lined):
    """What the engine does, from one snapshot after the other. It takes the height that it gets,
    and shows less where that is little."""

    DEFAULT_CSS = """
    Panel {
        width: 1fr;
        height: 1fr;
        min-height: 1;
    }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._state = PanelState()

    @property
    def state(self) -> PanelState:
        """What it shows; numbers that have hardly changed are still the former ones."""
        return self._state

    def show(self, state: PanelState) -> None:
        """Show a snapshot; at most four times a second."""
        self._state = settled(self._state, state)
        self._draw()

    def on_resize(self, event: events.Resize) -> None:
        self._draw()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        at = event.get_content_offset(self)
        name = None if at is None else named(at.y, self.size.height)
        self.tooltip = None if name is None else Content(explained(name, self._state))

    def _draw(self) -> None:
        self.show_lines(panel(self._state, self.size.width, self.size.height))
