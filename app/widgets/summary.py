"""The panel in one line, for narrow terminals."""

from __future__ import annotations

from textual import events

from ..talk.panel import PanelState
from .figures import fixed, number, percent, ratio
from .lined import Lined
from .lines import Line, Role, cells, fit
from .settle import settled
from .speedreadings import SIGNS, against_plain, speed_role
from .trustreadings import SAME_TEXT, promise


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
    """One line, ``width`` columns wide; which numbers it holds depends on the width alone."""
    times = against_plain(state)
    now = state.tokens_per_s if state.tokens_per_s is not None else state.tokens_per_s_reply
    sign, role = SIGNS.get(state.activity, ("●", "label"))
    drafting = "plain" if state.drafter is None else f"{state.drafter[:6]} {fixed(state.depth, 1)}"
    same, _ = promise(state.rule_set, number(state.temperature) or 0.0)
    full = ratio(state.context_used, state.context_limit)
    parts: tuple[Line, ...] = (
        ((f"{sign} ", role), (fixed(now, 5, 1), "value"), (" tok/s", "label")),
        ((f"{fixed(times, 4, 2)}×", speed_role(times)),),
        ((percent(state.acceptance), "value"), (" acc", "label")),
        ((f"{drafting:<9}", "plain"),),
        ((fixed(state.tokens_per_pass, 4, 2), "value"), ("/pass", "label")),
        (("✓ ", "good"), (f"{'text' if same == SAME_TEXT else 'distribution':<12}", "label")),
        (("ctx ", "label"), (percent(full), "value")),
        ((fixed(state.joules_per_token, 4, 2), "value"), (" J/tok", "label")),
    )
    line: list[tuple[str, Role]] = []
    for part in parts:
        gap = 2 if line else 0
        if cells(tuple(line)) + gap + cells(part) > width and line:
            break
        line += [(" " * gap, "plain"), *part]
    return fit(tuple(line), width)
