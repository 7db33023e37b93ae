"""The panel in one line, for narrow terminals."""

from __future__ import annotations

from textual import events

from macspec.plaintext import one_line

from ..widgets.lined import Lined
from ..widgets.lines import Line, cells, cut, fit
from .bars import bar
from .figures import fixed, number, percent, ratio, seconds
from .hysteresis import settled
from .speedrows import SIGNS, against_plain, speed_role
from .state import PanelState
from .trustrows import failed, promise

NARROW = 40
"""Columns up to which blanks and letters are saved."""


class Summary(Lined):
    """Speed, acceptance and the rest of the panel, as far as one line holds them."""

    DEFAULT_CSS = """
    Summary {
        width: 1fr;
        height: 1;
    }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._state = PanelState()

    def show(self, state: PanelState) -> None:
        """Show a snapshot; at most four times a second."""
        self._state = settled(self._state, state)
        self._draw()

    def on_resize(self, event: events.Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        self.show_lines((summary(self._state, self.size.width),))


def summary(state: PanelState, width: int) -> Line:
    """One line, ``width`` columns wide. While a reply streams, which numbers it holds depends on
    the width alone."""
    sign, role = SIGNS.get(state.activity, ("●", "label"))
    start: Line = ((f"{sign} ", role),)
    if number(state.progress) is not None and state.activity in ("loading", "reading"):
        line: Line = (*start, (f"{state.activity} ", "value"))
        room = max(min(width - cells(line) - 7, 40), 0)
        return fit((*line, *bar(state.progress, room), (percent(state.progress), "value")), width)
    if not state.passes:
        return fit((*start, (one_line(state.activity), "value")), width)
    parts = (_speed(state, width), *_parts(state))
    line = start
    wide = 2 if width > NARROW else 1
    for place, part in enumerate(parts):
        gap = wide if place else 0
        if cells(line) + gap + cells(part) > width:
            break
        line = (*line, (" " * gap, "plain"), *part)
    return fit(line, width)


def _badge(state: PanelState) -> Line:
    if failed(state):
        return (("✗ ", "bad"), (f"{'self-test':<12}", "bad"))
    same, _ = promise(state.rule, number(state.temperature) or 0.0)
    return (("✓ ", "good"), (f"{same.removeprefix('same '):<12}", "label"))


def _speed(state: PanelState, width: int) -> Line:
    now = state.tokens_per_s if state.tokens_per_s is not None else state.tokens_per_s_reply
    return ((fixed(now, 5, 1), "value"), (" tok/s" if width > NARROW else " t/s", "label"))


def _parts(state: PanelState) -> tuple[Line, ...]:
    times = against_plain(state)
    drafting = "plain"
    if state.drafter is not None:
        drafting = f"{cut(one_line(state.drafter), 6)} {fixed(state.round_depth, 2).strip()}"
    full = ratio(state.context_used, state.context_limit)
    return (
        ((f"{fixed(times, 4, 2)}×", speed_role(times)),),
        ((percent(state.acceptance), "value"), (" acc", "label")),
        ((f"{drafting:<9}", "plain"),),
        ((fixed(state.tokens_per_pass, 4, 2), "value"), ("/pass", "label")),
        _badge(state),
        (("ctx", "label"), (percent(full), "value")),
        ((fixed(state.joules_per_token, 4, 2), "value"), (" J/tok", "label")),
        (("TTFT", "label"), (seconds(state.ttft_s), "value")),
    )
