"""The sliders of depth, method, rule and temperature: how they look, and the widget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message

from macspec.choices import MAX_DEPTH, RULES, methods_with
from macspec.plaintext import one_line

from ..widgets.lines import Line, LinesView, Role, cells, fit, fitting, ruled, wrapped
from .charts import TRACK
from .figures import fixed, number
from .panelstate import PanelState

Value = int | float | str


@dataclass(frozen=True, slots=True)
class Slider:
    """Words to choose from, and after them a track of numbers; either may be missing."""

    label: str
    words: tuple[str, ...] = ()
    end: float = 0
    """Of the track; 0: it has none."""
    step: float = 1
    columns: int = 1_000
    """The most that its track takes."""

    @property
    def stops(self) -> tuple[Value, ...]:
        numbers = round(self.end / self.step) + 1 if self.end else 0
        return (*self.words, *(round(at * self.step, 2) for at in range(numbers)))

    def track(self, width: int) -> int:
        """Columns of the track in a slider so wide, between the words and the number."""
        return min(width - LABEL - sum(len(word) + 1 for word in self.words) - 5, self.columns)


SLIDERS = {
    "depth": Slider("depth", ("auto",), MAX_DEPTH, columns=MAX_DEPTH + 1),
    "method": Slider("method", methods_with(None, None)),
    "rule": Slider("rule", tuple(RULES)),
    "temperature": Slider("temp", end=2.0, step=0.05),
}

LABEL = 7
"""Columns of a slider's label."""

WIDE = 34
"""Columns from which a slider has a track, or all of its words."""

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
    sliders: Mapping[str, Slider] = field(default_factory=lambda: SLIDERS)

    def value(self, slider: str) -> Value:
        return self.asked.get(slider, self.known[slider])


def known(state: PanelState) -> dict[str, Value]:
    return {slider: getattr(state, slider) for slider in SLIDERS}


def stepped(slider: Slider, value: Value, by: int) -> Value:
    """The setting so many steps further; it stops at the ends of the slider."""
    at = len(slider.words) + round(_number(value) / slider.step)
    if value in slider.words:
        at = slider.stops.index(value)
    return slider.stops[max(min(at + by, len(slider.stops) - 1), 0)]


def places(shown: SliderState, width: int, low: bool = False) -> dict[str, Region]:
    """Where each slider is: one below another, in a wide strip two side by side, and on a low
    screen only the selected one."""
    if low:
        return {shown.selected: Region(0, 0, width, 1)}
    across = 1 if width < 2 * WIDE + GAP else 2
    each = (width - GAP * (across - 1)) // across
    return {
        slider: Region((each + GAP) * (at % across), 1 + at // across, each, 1)
        for at, slider in enumerate(SLIDERS)
    }


def at_column(slider: Slider, x: int, width: int) -> Value | None:
    """The setting at a column of a slider so wide; None: there is none."""
    if x < LABEL or width < WIDE:
        return None
    at = LABEL
    for word in slider.words:
        if at <= x < at + len(word):
            return word
        at += len(word) + 1
    share = (x - at) / (slider.track(width) - 1)
    return stepped(slider, max(min(share, 1.0), 0.0) * slider.end, 0) if slider.end else None


def slider_lines(shown: SliderState, width: int, low: bool = False) -> tuple[Line, ...]:
    """A heading, the sliders and a line of keys or errors; low: one slider and that line."""
    waits: Line = (("waiting for the engine", "warn"),) if shown.asked else ()
    lines: list[Line] = [] if low else [ruled("Sliders", width, waits)]
    for slider, (column, row, room, _) in places(shown, width, low).items():
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


def _slider(shown: SliderState, name: str, width: int) -> Line:
    slider, value = shown.sliders[name], shown.value(name)
    selected, waits = shown.focused and shown.selected == name, name in shown.asked
    label: Line = (
        (slider.label.ljust(LABEL - 1), "value" if selected else "label"),
        ("▸" if selected else " ", "mark"),
    )
    if width < WIDE:
        text = f"{_number(value):.2f}" if slider.step < 1 else one_line(str(value))
        role: Role = "asked" if waits else "value"
        return (*label, ("‹ ", "label"), (f"{text:^6}", role), (" ›", "label"))
    line = [*label]
    for word in slider.words:
        role = "asked" if waits and word == value else "plain"
        line += [(word, "chosen" if word == shown.known[name] else role), (" ", "plain")]
    return (*line, *_track(shown, name, slider.track(width))) if slider.end else tuple(line)


def _track(shown: SliderState, name: str, columns: int) -> Line:
    """A track with a thumb and the number that is set, or else a mark at the one in use."""
    slider, value = shown.sliders[name], shown.value(name)
    before: tuple[str, Role] = ("━", "bar")
    sign: tuple[str, Role] = ("○", "warn") if name in shown.asked else ("●", "bar")
    role: Role = "value"
    if isinstance(value, str):
        if shown.in_use is None:
            return ((TRACK * columns, "track"), (" ", "plain"), (" " * 4, "label"))
        value, before, sign, role = shown.in_use, (TRACK, "track"), ("┃", "mark"), "label"
    share, decimals = _number(value) / slider.end, 2 if value and slider.step < 1 else 0
    at = max(min(round(share * (columns - 1)), columns - 1), 0)
    return (
        (before[0] * at, before[1]),
        sign,
        (TRACK * (columns - at - 1), "track"),
        (" ", "plain" if slider.words else role),
        (fixed(_number(value), 4, decimals), role),
    )


def _number(value: Value) -> float:
    known = None if isinstance(value, str) else number(value)
    return 0.0 if known is None else max(min(known, 1e6), -1e6)


@dataclass
class Tune(Message):
    """The user set something that takes effect with the next round."""

    slider: str
    value: Value

    @property
    def changes(self) -> dict[str, Any]:
        """As ``EngineSetup.tune`` takes them."""
        change = {self.slider: self.value}
        return {"sampling": change} if self.slider == "temperature" else change


class Sliders(LinesView, can_focus=True):
    """What is changed is asked for at once with ``Tune``, and shown as waiting until a snapshot
    shows it as set, or it is ``refused``."""

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
        sliders = {**SLIDERS, "method": Slider("method", methods_with(state.draft, state.head))}
        shown = replace(self.state, known=now, sliders=sliders, asked=asked, in_use=in_use)
        self._draw(shown)

    def refused(self, slider: str, value: Value, reason: str) -> None:
        """What was asked for was refused: show what is still set, and the reason."""
        asked = dict(self.state.asked)
        if asked.get(slider) == value:
            del asked[slider]
        self._draw(replace(self.state, asked=asked, reason=reason))

    def select(self, slider: str) -> None:
        self._draw(replace(self.state, selected=slider, reason=""))

    def ask(self, slider: str, value: Value) -> None:
        if value == self.state.value(slider):
            return
        asked = {**self.state.asked, slider: value}
        self._draw(replace(self.state, asked=asked, selected=slider, reason=""))
        self.post_message(Tune(slider, value))

    def action_select(self, by: int) -> None:
        names = list(SLIDERS)
        self.select(names[(names.index(self.state.selected) + by) % len(names)])

    def action_step(self, by: int) -> None:
        slider = self.state.selected
        value = self.state.value(slider)
        if slider == "depth" and value == "auto" and by > 0:
            value = self.state.in_use or 0
        self.ask(slider, stepped(self.state.sliders[slider], value, by))

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
        for slider, place in self._places().items():
            if not place.contains_point(at):
                continue
            self._draw(replace(self.state, selected=slider))
            if place.width < WIDE:
                self.action_step(-1 if at.x - place.x < LABEL + 4 else 1)
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

    def _places(self) -> dict[str, Region]:
        return places(self.state, self.size.width, self.screen.size.height < LOW)

    def _set_at(self, slider: str, x: int) -> None:
        place = self._places()[slider]
        value = at_column(self.state.sliders[slider], x - place.x, place.width)
        if value is not None:
            self.ask(slider, value)

    def _draw(self, shown: SliderState) -> None:
        self.state = shown
        lines = slider_lines(shown, self.size.width, self.screen.size.height < LOW)
        if len(lines) != len(self.lines):
            self.refresh(layout=True)
        self.show_lines(lines)
