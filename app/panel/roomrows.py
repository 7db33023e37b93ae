"""Lines about context, memory and power."""

from __future__ import annotations

from macspec.plaintext import one_line

from ..widgets.lines import Line, Role, cells, cut, figure, fit, ruled, wrapped
from .bars import bar
from .figures import DASH, fixed, gigabytes, number, ratio, whole
from .state import PanelState

ALMOST = 0.9
"""Share from which on there is little room left."""

RAIL = 11
"""Columns of a rail and its watts."""

WORDY = 30
"""Columns from which on there are more words."""

SHORT = {"system": "all"}


def head(state: PanelState, width: int, rows: int) -> list[Line]:
    return [ruled("Room", width)]


def context(state: PanelState, width: int, rows: int) -> list[Line]:
    if number(state.context_limit) is None:
        return [(("context ", "label"), (f"{DASH} no model is loaded", "label"))]
    share = ratio(state.context_used, state.context_limit)
    text = f"{whole(state.context_used, 7)} /{whole(state.context_limit, 8)}"
    return [_filled("context", share, text, width)]


def memory(state: PanelState, width: int, rows: int) -> list[Line]:
    limit = state.memory_limit
    if number(limit) is None and number(state.memory_used) is None:
        return [(("memory  ", "label"), (f"{DASH} no model is loaded", "label"))]
    text = f"{gigabytes(state.memory_used)} /{gigabytes(limit)} GB"
    planned = ratio(state.memory_plan, limit)
    return [_filled("memory ", ratio(state.memory_used, limit), text, width, planned)]


def plan(state: PanelState, width: int, rows: int) -> list[Line]:
    share = ratio(state.memory_plan, state.memory_limit)
    role: Role = "bad" if share is not None and share > 1 else "value"
    return [figure("┃ plan, full context", f"{gigabytes(state.memory_plan)} GB", width, role)]


def energy_head(state: PanelState, width: int, rows: int) -> list[Line]:
    source = one_line(state.energy_source)
    return [ruled("Energy", width, ((source, "label"),) if source else ())]


def power(state: PanelState, width: int, rows: int) -> list[Line]:
    if not state.watts:
        reason = one_line(state.energy_reason) or "not read yet"
        return [((line, "label"),) for line in wrapped(f"{DASH} {reason}", width, rows)]
    each = max(width // max(width // RAIL, 1), 1)
    lines: list[Line] = []
    left = list(state.watts.items())
    for _ in range(rows):
        row: list[tuple[str, Role]] = []
        for name, watts in left[: max(width // RAIL, 1)]:
            cell: Line = (
                (f"{_rail(name)} ", "label"),
                (fixed(watts, 4, 1), "value"),
                (" W", "label"),
            )
            row += fit(cell, each)
        left = left[max(width // RAIL, 1) :]
        lines.append(tuple(row))
    return lines


def _rail(name: str) -> str:
    known = SHORT.get(name) or one_line(name)
    return cut(known if len(known) > 4 or known in SHORT.values() else known.upper(), 5)


def joules(state: PanelState, width: int, rows: int) -> list[Line]:
    gross = state.joules_per_token
    left: Line = (("J/token ", "label"), (fixed(gross, 5, 2), "value"))
    if number(gross) is None:
        return [(*left, (f" {_unmeasured(state)}", "label"))]
    net = fixed(state.net_joules_per_token, 5, 2)
    if width < WORDY:
        return [(*left, ("  net ", "label"), (net, "value"))]
    return [(*left, (" gross ", "label"), (net, "value"), (" net", "label"))]


def joules_of_plain(state: PanelState, width: int, rows: int) -> list[Line]:
    plain = state.plain_joules_per_token
    left: Line = (("  plain ", "label"), (fixed(plain, 5, 2), "value"))
    if number(plain) is None:
        reason = _unmeasured(state) if state.energy_reason else "A/B measures it"
        return [(*left, (f" {reason}", "label"))]
    share = ratio(state.joules_per_token, plain)
    role: Role = "good" if share is not None and share <= 0.97 else "value"
    return [(*left, (" gross ", "label"), (f"{fixed(share, 5, 2)}×", role))]


def _unmeasured(state: PanelState) -> str:
    if not state.energy_reason:
        return "not measured"
    return one_line(state.energy_reason) if state.watts else "no watts here"


def _filled(
    label: str, share: float | None, text: str, width: int, notch: float | None = None
) -> Line:
    role: Role = "bar"
    if share is not None and share >= ALMOST:
        role = "warn"
    end: Line = ((text, "value"),)
    room = width - len(label) - 2 - cells(end)
    middle = bar(share, room, role, notch) if room >= 3 else ((" " * max(room, 0), "plain"),)
    return fit(((f"{label} ", "label"), *middle, (" ", "plain"), *end), width)
