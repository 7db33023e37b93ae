"""A measurement in one sentence: does speculation pay, and does auto find the best of it?"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from .arms import MLX_LM, PLAIN, SERVER
from .cells import Cell, Ratio

AUTO = "auto"

NEAR = 0.05
"""How far behind the best arm another one is still near it."""


def verdict(cells: Sequence[Cell], baseline: str) -> str:
    """What all prompts say, over all temperatures; empty: nothing was compared with plain."""
    groups = sorted({it.group for it in cells if it.whole})
    speeds: dict[str, list[Ratio]] = defaultdict(list)
    for cell in cells:
        ours = not cell.arm.startswith((PLAIN, MLX_LM, SERVER))
        if cell.group in groups[:1] and ours and cell.speedup is not None:
            speeds[cell.arm].append(cell.speedup)
    if baseline != PLAIN or not speeds:
        return ""
    best = max(speeds, key=lambda arm: _mean(speeds[arm]))
    arm = AUTO if AUTO in speeds else best
    said = f"{_effect(speeds[arm])} on these prompts"
    if arm != best:
        behind = _mean(speeds[best]) / _mean(speeds[arm]) - 1
        near = f"within {max(behind, 0.01):.0%} of" if behind < NEAR else f"{behind:.0%} behind"
        return f"{said}; {arm} is {near} the best, {best}"
    return f"{said}; {arm} is the best of {len(speeds)} settings" if len(speeds) > 1 else said


def _mean(ratios: Sequence[Ratio]) -> float:
    return statistics.geometric_mean(it.value for it in ratios)


def _effect(ratios: Sequence[Ratio]) -> str:
    values = sorted(it.value for it in ratios)
    times = " to ".join(dict.fromkeys(f"{it:.2f}" for it in (values[0], values[-1])))
    lows = [it.low for it in ratios if it.low is not None]
    highs = [it.high for it in ratios if it.high is not None]
    if len(lows) < len(ratios):
        return f"too few replies to be sure, but speculation runs at {times}x plain"
    if min(lows) > 1:
        return f"speculation makes this pair {times}x faster"
    if max(highs) < 1:
        return f"speculation slows this pair down to {times}x plain"
    return f"speculation makes no clear difference for this pair ({times}x plain)"
