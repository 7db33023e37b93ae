"""Lines about exactness and kernels."""

from __future__ import annotations

from macspec.plaintext import one_line

from ..widgets.lines import Line, fitting, ruled, sides, wrapped
from .figures import DASH, number
from .state import PanelState

SAME_TEXT, SAME_DISTRIBUTION = "same text", "same distribution"


def promise(rule: str, temperature: float) -> tuple[str, str]:
    """What a reply shares with plain decoding, and whose promise that is.

    Greedy decoding, and for one seed the keyed rule, give the same text; the others give the same
    distribution.
    """
    if temperature == 0:
        return SAME_TEXT, "greedy"
    return (SAME_TEXT if rule == "keyed" else SAME_DISTRIBUTION), rule


def head(state: PanelState, width: int, rows: int) -> list[Line]:
    tested = one_line(state.self_test)
    if not tested:
        return [ruled("Exactness", width, ((f"{DASH} run macspec check", "label"),))]
    day = tested.replace(" on ", " ").rsplit(" ", 1)[0]
    shown = fitting(width - len("Exactness") - 3, f"self-test {tested}", tested, day)
    return [ruled("Exactness", width, ((shown, "bad" if failed(state) else "plain"),))]


def badge(state: PanelState, width: int, rows: int) -> list[Line]:
    same, whose = promise(state.rule, number(state.temperature) or 0.0)
    right: Line = ((one_line(whose), "value"),)
    if whose != "greedy" and width >= 30:
        right = (*right, (" rule", "label"))
    left: Line = (("✓ ", "good"), (same, "good"))
    if failed(state):
        left = (("✗ ", "bad"), ("self-test failed", "bad"))
    return [sides(left, right, width)]


def kernels(state: PanelState, width: int, rows: int) -> list[Line]:
    text = one_line(state.kernels) or f"{DASH} no model is loaded"
    first, *more = wrapped(f"kernels {text}", width, rows)
    lines: list[Line] = [(("kernels", "label"), (first.removeprefix("kernels"), "plain"))]
    return lines + [((line, "plain"),) for line in more]


def failed(state: PanelState) -> bool:
    """Whether the last self-test found another text."""
    return state.self_test.upper().startswith("FAILED")
