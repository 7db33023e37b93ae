"""The slider: depth, method, rule and temperature, at any time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Offset, Size

from ..messages import Tune
from ..widgets.lined import Lined
from .sliderlines import (
    DEEPEST,
    DIALS,
    LABEL,
    WIDE,
    Dials,
    Place,
    Value,
    at_column,
    changes,
    dial_lines,
    known,
    places,
    same,
    settings,
    stepped,
)
from .state import PanelState

LOW = 16
"""Rows of the screen below which only the selected dial is shown."""


class Tuning(Lined, can_focus=True):
    """Four dials. What is changed is asked for at once with ``Tune``, and shown as waiting until
    ``done`` or ``refused`` says how it went, or a snapshot shows it as set.

    Args:
        hint: what the last line says while something else has the focus.
    """

    DEFAULT_CSS = """
    Tuning {
        width: 1fr;
        height: auto;
        &:focus > .lined--head { color: $accent; }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "select(-1)", "Other dial", show=False),
        Binding("down,j", "select(1)", "Other dial", show=False),
        Binding("left,h", "step(-1)", "Less", show=False),
        Binding("right,l", "step(1)", "More", show=False),
        Binding("a", "auto", "Automatic", show=False),
        *(
            Binding(str(digit), f"depth({digit})", f"Depth {digit}", show=False)
            for digit in range(10)
        ),
    ]

    def __init__(
        self, *, hint: str = "", id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._dials = Dials(known(PanelState()), hint=hint)
        self._dragged: str | None = None

    @property
    def dials(self) -> Dials:
        """What it shows."""
        return self._dials

    def show(self, state: PanelState) -> None:
        """Show what the engine says is set, and the depth in use."""
        now = known(state)
        asked = {dial: value for dial, value in self._dials.asked.items() if now[dial] != value}
        in_use = state.round_depth if state.passes else None
        self._draw(replace(self._dials, known=now, asked=asked, in_use=in_use))

    def done(self, changed: Mapping[str, Any]) -> None:
        """What was asked for holds from the next round on."""
        told = settings(changed)
        self._draw(
            replace(
                self._dials,
                known={**self._dials.known, **told},
                asked=self._without(told),
                reason="",
            )
        )

    def refused(self, changed: Mapping[str, Any], reason: str) -> None:
        """What was asked for cannot be: show what holds, and why."""
        self._draw(replace(self._dials, asked=self._without(settings(changed)), reason=reason))

    def select(self, dial: str) -> None:
        """Go to a dial: depth, method, rule or temperature."""
        self._draw(replace(self._dials, selected=dial, reason=""))

    def ask(self, dial: str, value: Value) -> None:
        """Ask for another setting of a dial."""
        if same(value, self._dials.value(dial)):
            return
        asked = {**self._dials.asked, dial: value}
        self._draw(replace(self._dials, asked=asked, selected=dial, reason=""))
        self.post_message(Tune(changes(dial, value)))

    def action_select(self, by: int) -> None:
        self.select(DIALS[(DIALS.index(self._dials.selected) + by) % len(DIALS)])

    def action_step(self, by: int) -> None:
        dial = self._dials.selected
        value = self._dials.value(dial)
        if dial == "depth" and value == "auto" and by > 0:
            value = self._dials.in_use or 0
        self.ask(dial, stepped(dial, value, by))

    def action_auto(self) -> None:
        self.ask("method" if self._dials.selected == "method" else "depth", "auto")

    def action_depth(self, depth: int) -> None:
        """A one and another digit within the same dial make a number up to the deepest."""
        before = self._dials.value("depth")
        ten = before == 1 and self._dials.selected == "depth" and 10 + depth <= DEEPEST
        self.ask("depth", 10 + depth if ten else depth)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        at = event.get_content_offset(self)
        dial = None if at is None else self._dial_at(at)
        if at is None or dial is None:
            return
        self._draw(replace(self._dials, selected=dial))
        _, column, width = self._places()[dial]
        if width < WIDE:
            self.action_step(-1 if at.x - column < LABEL + 4 else 1)
            return
        self._dragged = dial
        self.capture_mouse()
        self._set_at(dial, at.x)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._dragged is not None:
            self._set_at(self._dragged, event.x - self.content_offset.x)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._dragged is not None:
            self._dragged = None
            self.release_mouse()

    def on_focus(self) -> None:
        self._draw(replace(self._dials, focused=True))

    def on_blur(self) -> None:
        self._draw(replace(self._dials, focused=False, reason=""))

    def on_resize(self, event: events.Resize) -> None:
        self._draw(self._dials)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(dial_lines(self._dials, width, viewport.height < LOW))

    @property
    def _low(self) -> bool:
        return self.screen.size.height < LOW

    def _places(self) -> dict[str, Place]:
        return places(self._dials, self.size.width, self._low)

    def _dial_at(self, at: Offset) -> str | None:
        for dial, (row, column, width) in self._places().items():
            if at.y == row and column <= at.x < column + width:
                return dial
        return None

    def _without(self, told: Mapping[str, Value]) -> dict[str, Value]:
        asked = self._dials.asked
        return {d: v for d, v in asked.items() if d not in told or not same(v, told[d])}

    def _set_at(self, dial: str, x: int) -> None:
        _, column, width = self._places()[dial]
        value = at_column(dial, x - column, width)
        if value is not None:
            self.ask(dial, value)

    def _draw(self, dials: Dials) -> None:
        self._dials = dials
        lines = dial_lines(dials, self.size.width, self._low)
        if len(lines) != len(self.lines):
            self.refresh(layout=True)
        self.show_lines(lines)
