"""How fast a kernel is beside what MLX does instead, on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import cache

import mlx.core as mx

from .checks import Check, check_of
from .outcomes import Outcome
from .variants import Variant

CHAIN = 16
"""Calls that are timed together, each waiting for the one before: as in a pass."""
REPEATS = 9
SURE = 1
"""Of nine ratios in ascending order, this one lies below their true median with a probability of
1 - (1 + 9) / 2^9 = 98%."""
WARM = 1.0
"""Seconds of work that raise the GPU's clock."""


def outcome_of(variant: Variant, copies: int = 1) -> Outcome:
    """Check a variant, and time it if its results are right.

    Args:
        copies: matrices of its shape that the model has.
    """
    check = check_of(variant, copies)
    if failure := check.failure():
        return Outcome(failure)
    warm_up()
    return Outcome(None, *timed(check))


@cache
def warm_up(clock: Callable[[], float] = time.perf_counter) -> None:
    """Keep the GPU busy until its clock has risen, once a process."""
    begin, x = clock(), mx.full((1024, 1024), 1e-3)
    while clock() - begin < WARM:
        for _ in range(CHAIN):
            x = x @ x
        mx.eval(x)


def timed(
    check: Check, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float, float]:
    """Median seconds of one call of ours and of MLX's, measured in turn; and the lower bound of
    how many times as fast ours is."""
    ours: list[float] = []
    theirs: list[float] = []
    for repeat in range(REPEATS + 1):
        pair = [(check.ours, ours), (check.mlx, theirs)]
        for call, seconds in pair if repeat % 2 else pair[::-1]:
            x, begin = check.start, clock()
            for _ in range(CHAIN):
                x = call(x)
            mx.eval(x)
            each = (clock() - begin) / CHAIN
            if repeat:  # the first only compiles and warms up
                seconds.append(each)
    ratios = sorted(mlx / own for own, mlx in zip(ours, theirs, strict=True))
    return statistics.median(ours), statistics.median(theirs), ratios[SURE]
