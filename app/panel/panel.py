"""The live panel and its one-line form; their numbers stand still while they hardly change."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from textual.content import Content
from textual.events import MouseMove

from ..widgets.lines import Line, LinesView
from .figures import number
from .panelrows import panel_lines, summary_line, tooltip
from .panelstate import PanelState


class Readout(LinesView):
    """Shows one snapshot after another; ``draw`` takes a state, a width and a height."""

    def __init__(self, draw: Callable[[PanelState, int, int], tuple[Line, ...]]) -> None:
        super().__init__()
        self._draw = draw
        self.state = PanelState()
        """What it shows; a number that has hardly changed keeps its former value."""

    def show(self, state: PanelState) -> None:
        self.state = hysteresis(self.state, state)
        self.on_resize()

    def on_resize(self) -> None:
        self.show_lines(self._draw(self.state, *self.size))


class Panel(Readout):
    """Every row that its height has room for, with a tooltip on each."""

    DEFAULT_CSS = """
    Panel {
        width: 1fr;
        height: 1fr;
        min-height: 1;
    }
    """

    def __init__(self) -> None:
        super().__init__(panel_lines)

    def on_mouse_move(self, event: MouseMove) -> None:
        at = event.get_content_offset(self)
        text = None if at is None else tooltip(self.state, at.y, self.size.height)
        self.tooltip = None if text is None else Content(text)


class Summary(Readout):
    """The panel in one line, for narrow terminals."""

    DEFAULT_CSS = """
    Summary {
        width: 1fr;
        height: 1;
    }
    """

    def __init__(self) -> None:
        super().__init__(lambda state, width, height: (summary_line(state, width),))


RAILS = ("gpu", "cpu", "dram", "ane", "system")

NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?")

SLACK: dict[str, tuple[float, float]] = {
    "tokens_per_s": (0.07, 0.01),
    "tokens_per_s_reply": (0.07, 0.005),
    "session_tokens_per_s": (0.07, 0.005),
    "session_speedup": (0.007, 0.0),
    "plain_tokens_per_s": (0.07, 0.01),
    "acceptance_now": (0.012, 0.0),
    "acceptance": (0.006, 0.0),
    "tokens_per_pass": (0.007, 0.0),
    "itl_ms_median": (0.07, 0.01),
    "itl_ms_p95": (0.07, 0.02),
    "memory_used": (0.06 * 2**30, 0.0),
    "joules_per_token": (0.007, 0.0),
    "net_joules_per_token": (0.007, 0.0),
}
"""By field: how far a number may drift, absolutely and as a share, before it is redrawn."""


def hysteresis(shown: PanelState, new: PanelState) -> PanelState:
    """``new``, but with the numbers of ``shown`` where they have hardly changed."""
    kept: dict[str, Any] = {}
    again = new.passes < shown.passes or new.activity != shown.activity
    for name, (least, share) in SLACK.items() if not again else ():
        before, now = number(getattr(shown, name)), number(getattr(new, name))
        if before is not None and now is not None and _near(before, now, least, share):
            kept[name] = getattr(shown, name)
    same = (new.drafter, new.round_depth) == (shown.drafter, shown.round_depth)
    if same and not again and _alike(shown.why, new.why):
        kept["why"] = shown.why
    if new.watts:
        kept["watts"] = {
            name: _watts(shown.watts.get(name), new.watts.get(name, math.nan))
            for name in sorted({*shown.watts, *new.watts}, key=_rail)
        }
    return replace(new, **kept)


def _rail(name: str) -> tuple[int, str]:
    return (RAILS.index(name) if name in RAILS else len(RAILS), name)


def _watts(before: float | None, now: float) -> float:
    """A rail without a reading has no watts, but keeps its place."""
    old, new = number(before), number(now)
    return old if old is not None and new is not None and _near(old, new, 0.07, 0.0) else now


def _near(before: float, now: float, least: float, share: float) -> bool:
    return math.isfinite(before) and abs(now - before) <= max(least, share * abs(before))


def _alike(one: str, other: str) -> bool:
    """Whether two sentences differ only in numbers, and only slightly."""
    if NUMBER.sub("", one) != NUMBER.sub("", other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(abs(float(a) - float(b)) <= max(0.1, 0.1 * float(a)) for a, b in pairs)
