"""Lines about exactness and kernels."""

from __future__ import annotations

from macspec.plaintext import one_line

from ..talk.panel import PanelState
from .figures import DASH, number
from .lines import Line, fit, ruled, sides, wrapped

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
    return [ruled("Exactness", width)]


def badge(state: PanelState, width: int, rows: int) -> list[Line]:
    same, whose = promise(state.rule_set, number(state.temperature) or 0.0)
    left: Line = (("✓ ", "good"), (same, "good"))
    return [
        sides(
            left,
            ((one_line(whose), "value"), (" rule", "label"))
            if whose != "greedy"
            else (("greedy", "value"),),
            width,
        )
    ]


def self_test(state: PanelState, width: int, rows: int) -> list[Line]:
    if not state.self_test:
        return [fit((("self-test ", "label"), (f"{DASH} run macspec check", "label")), width)]
    return [fit((("self-test ", "label"), (one_line(state.self_test), "plain")), width)]


def kernels(state: PanelState, width: int, rows: int) -> list[Line]:
    text = one_line(state.kernels) or DASH
    first, *more = wrapped(f"kernels {text}", width, rows)
    lines: list[Line] = [(("kernels", "label"), (first.removeprefix("kernels"), "plain"))]
    return lines + [((line, "plain"),) for line in more]
