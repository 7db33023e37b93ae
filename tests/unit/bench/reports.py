"""A report from scripted arms, as it lies in a file."""

from __future__ import annotations

import random
from typing import Any

from scripted_arms import Clock, ScriptedArm, costs_of, questions

from macspec.bench.cells import Cell, cells
from macspec.bench.document import document
from macspec.bench.equality import Compared
from macspec.bench.run import Protocol, Run
from macspec.kernels import Kernels
from macspec.models import Pair
from macspec.power import Conditions

COSTS = costs_of({rows: 1 + 0.2 * rows for rows in (2, 3, 4, 5, 8, 16, 32)}, 0.1)


def measured(
    pair: Pair, speeds: dict[str, float], *, seed: int = 1, protocol: Protocol | None = None
) -> Run:
    """A run of arms of so many tokens a second; the first is the baseline."""
    clock = Clock()
    arms = [
        ScriptedArm(name, clock, speed=speed, shake=0.03, chance=random.Random(f"{name} {seed}"))
        for name, speed in speeds.items()
    ]
    run = Run(
        pair,
        arms,
        [*questions(6), *questions(4, workload="maths")],
        protocol or Protocol(temperatures=(0.0, 0.7), repeats=3),
        costs=COSTS,
        clock=clock,
        state=lambda: Conditions("mains", 80, "nominal"),
    )
    list(run.measure())
    return run


def results(run: Run) -> tuple[list[Cell], list[Compared]]:
    """What ``Run.results`` finds, for arms of any name."""
    names = list(run.arms)
    costs = dict.fromkeys(names, COSTS)
    compared = [Compared(it, None) for it in run.samples if it.arm != names[0]]
    return cells(run.samples, names[0], names, costs=costs), compared


def report(pair: Pair, speeds: dict[str, float], **more: Any) -> dict[str, Any]:
    """The same as a document."""
    run = measured(pair, speeds, seed=more.pop("seed", 1))
    return document(run, results(run), ["macspec", "bench"], kernels=Kernels(), **more)
