"""Numbers that stand still while they hardly change."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

from .figures import number
from .state import PanelState

RAILS = ("gpu", "cpu", "dram", "ane", "system")

NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?")

SLACK: dict[str, tuple[float, float]] = {
    "tokens_per_s": (0.07, 0.01),
    "tokens_per_s_reply": (0.07, 0.005),
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
"""By field: how far a number may go, at least and as a share of it, before another is shown."""


def settled(shown: PanelState, new: PanelState) -> PanelState:
    """``new``, with the numbers of ``shown`` where they have hardly changed."""
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
    """A rail that stands still for long has no watts, but keeps its place."""
    old, new = number(before), number(now)
    return old if old is not None and new is not None and _near(old, new, 0.07, 0.0) else now


def _near(before: float, now: float, least: float, share: float) -> bool:
    return math.isfinite(before) and abs(now - before) <= max(least, share * abs(before))


def _alike(one: str, other: str) -> bool:
    """Whether two sentences differ in numbers only, and in those by little."""
    if NUMBER.sub("", one) != NUMBER.sub("", other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(abs(float(a) - float(b)) <= max(0.1, 0.1 * float(a)) for a, b in pairs)
