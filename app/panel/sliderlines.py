"""What can be tuned, and how it looks: pure functions of the values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from macspec.plaintext import one_line

from ..widgets.lines import Line, Role, cells, fit, fitting, ruled, wrapped
from .bars import TRACK
from .figures import fixed, number
from .state import PanelState

Value = int | float | str

DIALS = ("depth", "method", "rule", "temperature")

LABELS = {"depth": "depth", "method": "method", "rule": "rule", "temperature": "temp"}

METHODS = ("auto", "draft", "suffix", "ngram", "off")
RULES = ("block", "keyed", "match")
OPTIONS: dict[str, tuple[str, ...]] = {"method": METHODS, "rule": RULES}

DEEPEST = 16
HOTTEST, STEP = 2.0, 0.05

LABEL = 7
"""Columns before a dial."""

AUTO = LABEL + len("auto ")
"""Column at which the track of the depth begins; before it, auto can be chosen."""

WIDE = 34
"""Columns from which on every dial shows all that it can be set to."""

GAP = 3
"""Columns between two dials."""

KEYS = (
    "← → change   ↑ ↓ other dial   a auto   0–9 depth",
    "← → change  ↑ ↓ choose  a auto",
    "← → ↑ ↓  a auto",
)

THUMB, WAITING = "●", "○"


class Place(NamedTuple):
    """Where a dial lies."""

    row: int
    column: int
    width: int


@dataclass(frozen=True, slots=True)
class Dials:
    """What is set, what was asked for and not yet confirmed, and what was refused."""

    known: Mapping[str, Value]
    asked: Mapping[str, Value] = field(default_factory=dict)
    selected: str = "depth"
    focused: bool = False
    in_use: int | None = None
    """Depth of the newest round."""
    reason: str = ""
    """Why the newest change was refused."""
    hint: str = ""

    def value(self, dial: str) -> Value:
        """What is shown."""
        return self.asked.get(dial, self.known[dial])


def known(state: PanelState) -> dict[str, Value]:
    """What the engine says is set."""
    return {
        "depth": state.depth,
        "method": state.method,
        "rule": state.rule,
        "temperature": state.temperature,
    }


def same(one: Value, other: Value) -> bool:
    """Whether two settings are the same; temperatures are numbers with a fraction."""
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return abs(one - other) < 1e-6


def stepped(dial: str, value: Value, by: int) -> Value:
    """The setting so many steps on; it stays where the dial ends."""
    if dial == "temperature":
        at = round(_number(value) / STEP) + by
        return round(max(min(at, round(HOTTEST / STEP)), 0) * STEP, 2)
    stops = _stops(dial)
    at = stops.index(value) if value in stops else len(stops) - 1
    return stops[max(min(at + by, len(stops) - 1), 0)]


def changes(dial: str, value: Value) -> dict[str, Any]:
    """A setting as the engine wants to be told."""
    return {"sampling": {dial: value}} if dial == "temperature" else {dial: value}


def settings(changed: Mapping[str, Any]) -> dict[str, Value]:
    """The inverse of ``changes``, for those that are dials."""
    flat = {**changed, **changed.get("sampling", {})}
    return {dial: flat[dial] for dial in DIALS if dial in flat}


def places(dials: Dials, width: int, low: bool = False) -> dict[str, Place]:
    """Where each dial lies: under each other, in a wide strip two beside each other, and where
    there is hardly any height only the selected one."""
    if low:
        return {dials.selected: Place(0, 0, width)}
    if width < 2 * WIDE + GAP:
        return {dial: Place(1 + row, 0, width) for row, dial in enumerate(DIALS)}
    half = (width - GAP) // 2
    return {
        dial: Place(1 + number // 2, (half + GAP) * (number % 2), half)
        for number, dial in enumerate(DIALS)
    }


def at_column(dial: str, x: int, width: int) -> Value | None:
    """The setting at a column of a dial so wide; None: there is none."""
    if x < LABEL or width < WIDE:
        return None
    if dial == "depth":
        return "auto" if x < AUTO - 1 else max(min(x - AUTO, DEEPEST), 0)
    if dial == "temperature":
        share = (x - LABEL) / (_track(width) - 1)
        return stepped(dial, max(min(share, 1.0), 0.0) * HOTTEST, 0)
    at = LABEL
    for option in OPTIONS[dial]:
        if at <= x < at + len(option):
            return option
        at += len(option) + 1
    return None


def dial_lines(dials: Dials, width: int, low: bool = False) -> tuple[Line, ...]:
    """A heading, the dials, and what there is to say; low: a dial, and that."""
    waits: Line = (("waits for the engine", "warn"),) if dials.asked else ()
    lines: list[Line] = [] if low else [ruled("Tuning", width, waits)]
    for dial, (row, column, room) in places(dials, width, low).items():
        drawn = fit(_dial(dials, dial, room), room)
        if row < len(lines):
            lines[row] = (*lines[row], (" " * (column - cells(lines[row])), "plain"), *drawn)
        else:
            lines.append(drawn)
    if dials.reason:
        reason = one_line(dials.reason)
        lines += [((line, "bad"),) for line in wrapped(reason, width, 1 if low else 3) if line]
    elif low and dials.asked:
        lines.append(waits)
    else:
        keys = fitting(width, *KEYS) if dials.focused else dials.hint
        lines.append(((keys, "label"),))
    return tuple(fit(line, width) for line in lines)


def _dial(dials: Dials, dial: str, width: int) -> Line:
    selected = dials.focused and dials.selected == dial
    label: Line = (
        (LABELS[dial].ljust(LABEL - 1), "value" if selected else "label"),
        ("▸" if selected else " ", "mark"),
    )
    if width < WIDE:
        return (*label, *_cycle(dials, dial))
    if dial == "depth":
        return (*label, *_depth(dials))
    if dial == "temperature":
        return (*label, *_temperature(dials, _track(width)))
    return (*label, *_options(dials, dial, OPTIONS[dial]))


def _options(dials: Dials, dial: str, options: Sequence[str]) -> Line:
    parts: list[tuple[str, Role]] = []
    for option in options:
        role: Role = "plain"
        if option == dials.known[dial]:
            role = "chosen"
        elif option == dials.asked.get(dial):
            role = "asked"
        parts += [(option, role), (" ", "plain")]
    return tuple(parts[:-1])


def _depth(dials: Dials) -> Line:
    value, waits = dials.value("depth"), "depth" in dials.asked
    auto = _options(dials, "depth", ("auto",))
    track: list[tuple[str, Role]] = [(TRACK, "track")] * (DEEPEST + 1)
    if not isinstance(value, str):
        at = max(min(round(_number(value)), DEEPEST), 0)
        track[:at] = [("━", "bar")] * at
        track[at] = (WAITING if waits else THUMB, "warn" if waits else "bar")
        shown: Line = ((f"{round(_number(value)):>4}", "value"),)
    else:
        shown = ((" " * 4 if dials.in_use is None else f"{min(dials.in_use, 999):>4}", "label"),)
    if dials.in_use is not None and 0 <= dials.in_use <= DEEPEST and isinstance(value, str):
        track[dials.in_use] = ("┃", "mark")
    return (*auto, (" ", "plain"), *track, (" ", "plain"), *shown)


def _temperature(dials: Dials, track: int) -> Line:
    value, waits = _number(dials.value("temperature")), "temperature" in dials.asked
    at = max(min(round(value / HOTTEST * (track - 1)), track - 1), 0)
    shown = fixed(value, 4, 2 if value else 0)
    return (
        ("━" * at, "bar"),
        (WAITING if waits else THUMB, "warn" if waits else "bar"),
        (TRACK * (track - at - 1), "track"),
        (f" {shown}", "value"),
    )


def _cycle(dials: Dials, dial: str) -> Line:
    value, waits = dials.value(dial), dial in dials.asked
    text = f"{_number(value):.2f}" if dial == "temperature" else one_line(str(value))
    role: Role = "asked" if waits else "value"
    return (("‹ ", "label"), (f"{text:^6}", role), (" ›", "label"))


def _stops(dial: str) -> tuple[Value, ...]:
    return ("auto", *range(DEEPEST + 1)) if dial == "depth" else OPTIONS[dial]


def _track(width: int) -> int:
    return width - LABEL - 5


def _number(value: Value) -> float:
    known = None if isinstance(value, str) else number(value)
    return 0.0 if known is None else max(min(known, 1e6), -1e6)
