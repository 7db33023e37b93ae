"""The sliders of depth, method, rule and temperature: how they look, and the widget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, ClassVar, NamedTuple

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message

from macspec.choices import MAX_DEPTH, METHODS, RULES
from macspec.plaintext import one_line

from ..widgets.lines import Line, LinesView, Role, cells, fit, fitting, ruled, wrapped
from .charts import TRACK
from .figures import fixed, number
from .panelstate import PanelState

Value = int | float | str

SLIDERS = ("depth", "method", "rule", "temperature")

LABELS = {"depth": "depth", "method": "method", "rule": "rule", "temperature": "temp"}

OPTIONS = {"depth": ("auto",), "method": tuple(METHODS), "rule": tuple(RULES)}

HOTTEST, STEP = 2.0, 0.05

LABEL = 7
"""Columns of a slider's label."""

AUTO = LABEL + len("auto ")
"""Column at which the track of the depth begins; auto stands before it."""

WIDE = 34
"""Columns from which a slider has a track, or all of its options."""

GAP = 3
"""Columns between two sliders."""

KEYS = (
    "← → change   ↑ ↓ select   a auto   0–9 depth",
    "← → change  ↑ ↓ select  a auto",
    "← → ↑ ↓  a auto",
)

DIGITS_S = 1.5
"""Seconds within which two digits typed are one number."""

LOW = 16
"""Rows of the screen below which only the selected slider is shown."""


class Place(NamedTuple):
    row: int
    column: int
    width: int


@dataclass(frozen=True, slots=True)
class SliderState:
    """What is set, what was asked for but is not confirmed yet, and why something was refused."""

    known: Mapping[str, Value]
    asked: Mapping[str, Value] = field(default_factory=dict)
    selected: str = "depth"
    focused: bool = False
    in_use: int | None = None
    """Depth of the latest round."""
    reason: str = ""
    """Why the latest change was refused."""
    hint: str = ""
    """The last line while something else has the focus."""

    def value(self, slider: str) -> Value:
        return self.asked.get(slider, self.known[slider])


def known(state: PanelState) -> dict[str, Value]:
    return {slider: getattr(state, slider) for slider in SLIDERS}


def same(one: Value, other: Value) -> bool:
    """Whether two settings are the same; temperatures are numbers with a fraction."""
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return abs(one - other) < 1e-6


def stepped(slider: str, value: Value, by: int) -> Value:
    """The setting so many steps further; it stops at the ends of the slider."""
    if slider == "temperature":
        at = round(_number(value) / STEP) + by
        return round(max(min(at, round(HOTTEST / STEP)), 0) * STEP, 2)
    stops: tuple[Value, ...] = OPTIONS[slider]
    if slider == "depth":
        stops = (*stops, *range(MAX_DEPTH + 1))
    at = stops.index(value) if value in stops else len(stops) - 1
    return stops[max(min(at + by, len(stops) - 1), 0)]


def changes(slider: str, value: Value) -> dict[str, Any]:
    """A setting as ``EngineClient.tune`` takes it."""
    return {"sampling": {slider: value}} if slider == "temperature" else {slider: value}


def settings(changed: Mapping[str, Any]) -> dict[str, Value]:
    """The inverse of ``changes``, for those that have a slider."""
    flat = {**changed, **changed.get("sampling", {})}
    return {slider: flat[slider] for slider in SLIDERS if slider in flat}


def places(shown: SliderState, width: int, low: bool = False) -> dict[str, Place]:
    """Where each slider is: one below another, in a wide strip two side by side, and on a low
    screen only the selected one."""
    if low:
        return {shown.selected: Place(0, 0, width)}
    across = 1 if width < 2 * WIDE + GAP else 2
    each = (width - GAP * (across - 1)) // across
    return {
        slider: Place(1 + at // across, (each + GAP) * (at % across), each)
        for at, slider in enumerate(SLIDERS)
    }


def at_column(slider: str, x: int, width: int) -> Value | None:
    """The setting at a column of a slider so wide; None: there is none."""
    if x < LABEL or width < WIDE:
        return None
    if slider == "depth":
        share = (x - AUTO) / (_depth_track(width) - 1)
        return "auto" if x < AUTO - 1 else round(max(min(share, 1.0), 0.0) * MAX_DEPTH)
    if slider == "temperature":
        share = (x - LABEL) / (_track(width) - 1)
        return stepped(slider, max(min(share, 1.0), 0.0) * HOTTEST, 0)
    at = LABEL
    for option in OPTIONS[slider]:
        if at <= x < at + len(option):
            return option
        at += len(option) + 1
    return None


def slider_lines(shown: SliderState, width: int, low: bool = False) -> tuple[Line, ...]:
    """A heading, the sliders and a line of keys or errors; low: one slider and that line."""
    waits: Line = (("waiting for the engine", "warn"),) if shown.asked else ()
    lines: list[Line] = [] if low else [ruled("Sliders", width, waits)]
    for slider, (row, column, room) in places(shown, width, low).items():
        drawn = fit(_slider(shown, slider, room), room)
        if row < len(lines):
            lines[row] = (*lines[row], (" " * (column - cells(lines[row])), "plain"), *drawn)
        else:
            lines.append(drawn)
    if shown.reason:
        reason = one_line(shown.reason)
        lines += [((line, "bad"),) for line in wrapped(reason, width, 1 if low else 3) if line]
    elif low and shown.asked:
        lines.append(waits)
    else:
        keys = fitting(width, *KEYS) if shown.focused else shown.hint
        lines.append(((keys, "label"),))
    return tuple(fit(line, width) for line in lines)


def _slider(shown: SliderState, slider: str, width: int) -> Line:
    selected = shown.focused and shown.selected == slider
    label: Line = (
        (LABELS[slider].ljust(LABEL - 1), "value" if selected else "label"),
        ("▸" if selected else " ", "mark"),
    )
    if width < WIDE:
        return (*label, *_cycle(shown, slider))
    if slider == "depth":
        return (*label, *_depth(shown, _depth_track(width)))
    if slider == "temperature":
        value, waits = _number(shown.value(slider)), slider in shown.asked
        figure = fixed(value, 4, 2 if value else 0)
        thumb = _thumb(value / HOTTEST, _track(width), waits)
        return (*label, *thumb, (f" {figure}", "value"))
    return (*label, *_options(shown, slider))


def _options(shown: SliderState, slider: str) -> Line:
    parts: list[tuple[str, Role]] = []
    for option in OPTIONS[slider]:
        role: Role = "plain"
        if option == shown.known[slider]:
            role = "chosen"
        elif option == shown.asked.get(slider):
            role = "asked"
        parts += [(option, role), (" ", "plain")]
    return tuple(parts[:-1])


def _depth(shown: SliderState, track: int) -> Line:
    value, waits = shown.value("depth"), "depth" in shown.asked
    auto = _options(shown, "depth")
    if not isinstance(value, str):
        depth = round(_number(value))
        thumb, figure = _thumb(depth / MAX_DEPTH, track, waits), f"{depth:>4}"
        return (*auto, (" ", "plain"), *thumb, (" ", "plain"), (figure, "value"))
    parts: Line = ((TRACK * track, "track"),)
    if shown.in_use is not None and 0 <= shown.in_use <= MAX_DEPTH:
        at = round(shown.in_use / MAX_DEPTH * (track - 1))
        parts = ((TRACK * at, "track"), ("┃", "mark"), (TRACK * (track - at - 1), "track"))
    used = " " * 4 if shown.in_use is None else f"{min(shown.in_use, 999):>4}"
    return (*auto, (" ", "plain"), *parts, (" ", "plain"), (used, "label"))


def _thumb(share: float, track: int, waits: bool) -> Line:
    at = max(min(round(share * (track - 1)), track - 1), 0)
    return (
        ("━" * at, "bar"),
        ("○" if waits else "●", "warn" if waits else "bar"),
        (TRACK * (track - at - 1), "track"),
    )


def _cycle(shown: SliderState, slider: str) -> Line:
    value, waits = shown.value(slider), slider in shown.asked
    text = f"{_number(value):.2f}" if slider == "temperature" else one_line(str(value))
    role: Role = "asked" if waits else "value"
    return (("‹ ", "label"), (f"{text:^6}", role), (" ›", "label"))


def _track(width: int) -> int:
    return width - LABEL - 5


def _depth_track(width: int) -> int:
    return min(width - AUTO - 5, MAX_DEPTH + 1)


def _number(value: Value) -> float:
    known = None if isinstance(value, str) else number(value)
    return 0.0 if known is None else max(min(known, 1e6), -1e6)


@dataclass
class Tune(Message):
    """The user set something that takes effect with the next round."""

    changes: Mapping[str, Any]
    """As ``EngineClient.tune`` takes them: method, depth, rule or fields of sampling."""


class Sliders(LinesView, can_focus=True):
    """What is changed is asked for at once with ``Tune``, and shown as waiting until ``done`` or
    ``refused`` says how it went, or a snapshot shows it as set."""

    DEFAULT_CSS = """
    Sliders {
        width: 1fr;
        height: auto;
        &:focus > .line--head { color: $accent; }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "select(-1)", "Select", show=False),
        Binding("down,j", "select(1)", "Select", show=False),
        Binding("left,h", "step(-1)", "Less", show=False),
        Binding("right,l", "step(1)", "More", show=False),
        Binding("a", "auto", "Automatic", show=False),
        *(
            Binding(str(digit), f"depth({digit})", f"Depth {digit}", show=False)
            for digit in range(10)
        ),
    ]

    def __init__(self, *, hint: str = "", id: str | None = None) -> None:
        super().__init__(id=id)
        self.state = SliderState(known(PanelState()), hint=hint)
        self._dragged: str | None = None
        self._typed = (0, -DIGITS_S)
        """The last digit, and when."""

    def show(self, state: PanelState) -> None:
        now = known(state)
        asked = {name: value for name, value in self.state.asked.items() if now[name] != value}
        in_use = state.round_depth if state.passes else None
        self._draw(replace(self.state, known=now, asked=asked, in_use=in_use))

    def done(self, changed: Mapping[str, Any]) -> None:
        """What was asked for takes effect with the next round."""
        confirmed = settings(changed)
        now = {**self.state.known, **confirmed}
        self._draw(replace(self.state, known=now, asked=self._without(confirmed), reason=""))

    def refused(self, changed: Mapping[str, Any], reason: str) -> None:
        """What was asked for was refused: show what is still set, and the reason."""
        self._draw(replace(self.state, asked=self._without(settings(changed)), reason=reason))

    def select(self, slider: str) -> None:
        self._draw(replace(self.state, selected=slider, reason=""))

    def ask(self, slider: str, value: Value) -> None:
        if same(value, self.state.value(slider)):
            return
        asked = {**self.state.asked, slider: value}
        self._draw(replace(self.state, asked=asked, selected=slider, reason=""))
        self.post_message(Tune(changes(slider, value)))

    def action_select(self, by: int) -> None:
        self.select(SLIDERS[(SLIDERS.index(self.state.selected) + by) % len(SLIDERS)])

    def action_step(self, by: int) -> None:
        slider = self.state.selected
        value = self.state.value(slider)
        if slider == "depth" and value == "auto" and by > 0:
            value = self.state.in_use or 0
        self.ask(slider, stepped(slider, value, by))

    def action_auto(self) -> None:
        self.ask("method" if self.state.selected == "method" else "depth", "auto")

    def action_depth(self, depth: int) -> None:
        """Two digits in quick succession make one number, if it is a depth."""
        now = monotonic()
        digit, at = self._typed
        both = 10 * digit + depth
        self._typed = depth, now
        self.ask("depth", both if digit and now - at < DIGITS_S and both <= MAX_DEPTH else depth)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        at = event.get_content_offset(self)
        if at is None:
            return
        for slider, (row, column, width) in self._places().items():
            if at.y != row or not column <= at.x < column + width:
                continue
            self._draw(replace(self.state, selected=slider))
            if width < WIDE:
                self.action_step(-1 if at.x - column < LABEL + 4 else 1)
            else:
                self._dragged = slider
                self.capture_mouse()
                self._set_at(slider, at.x)
            return

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._dragged is not None:
            self._set_at(self._dragged, event.x - self.content_offset.x)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._dragged is not None:
            self._dragged = None
            self.release_mouse()

    def on_focus(self) -> None:
        self._draw(replace(self.state, focused=True))

    def on_blur(self) -> None:
        self._draw(replace(self.state, focused=False, reason=""))

    def on_resize(self, event: events.Resize) -> None:
        self._draw(self.state)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(slider_lines(self.state, width, viewport.height < LOW))

    def _places(self) -> dict[str, Place]:
        return places(self.state, self.size.width, self.screen.size.height < LOW)

    def _without(self, confirmed: Mapping[str, Value]) -> dict[str, Value]:
        asked = self.state.asked
        return {
            name: value
            for name, value in asked.items()
            if name not in confirmed or not same(value, confirmed[name])
        }

    def _set_at(self, slider: str, x: int) -> None:
        _, column, width = self._places()[slider]
        value = at_column(slider, x - column, width)
        if value is not None:
            self.ask(slider, value)

    def _draw(self, shown: SliderState) -> None:
        self.state = shown
        lines = slider_lines(shown, self.size.width, self.screen.size.height < LOW)
        if len(lines) != len(self.lines):
            self.refresh(layout=True)
        self.show_lines(lines)
