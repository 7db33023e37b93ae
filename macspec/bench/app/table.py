"""What the app costs as a table: each measure, what was found, and the bar that it is held to."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ...plaintext import one_line
from .. import setup
from ..tables import DASH, Table
from .cost import AppCost, late
from .plan import Plan
from .real import Asked, Decoded

KIND = "macspec bench app"
FORMAT = 1

COLUMNS = ("measure", "median", "from", "to", "at most", "held")

FEW = 64
"""Tokens of a reply below which its speed says little."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A measure, and what it may be at most."""

    about: str
    most: float
    unit: str
    """%, s or ms; the values are shares and seconds."""

    def shown(self, value: float) -> str:
        """A value in this unit."""
        match self.unit:
            case "%":
                return f"{100 * value:.1f} %"
            case "ms":
                return f"{1e3 * value:.0f} ms"
            case _:
                return f"{value:.2f} s"


def bars(plan: Plan) -> dict[str, Bar]:
    """By the names in ``AppCost.values``, in the order of the table."""
    return {
        "speed": Bar("decode speed lost against macspec run", 0.05, "%"),
        "core": Bar(f"of one core at 30 tok/s after {plan.turns} turns (paced)", 0.30, "%"),
        "panel": Bar("of that, the panel (paced)", 0.06, "%"),
        "start": Bar("start of the process to a prompt that echoes", 1.5, "s"),
        "leave": Bar("key to the end of the process", 0.5, "s"),
        "keys": Bar("key to what it shows while a reply streams, p95", 0.1, "ms"),
        "streamed": Bar(f"worst freeze, {plan.characters:,} characters streamed", 0.2, "ms"),
        "opened": Bar(f"worst freeze, {plan.characters:,} characters opened", 0.2, "ms"),
        "line": Bar(f"worst freeze, a line of {plan.line:,} characters", 0.2, "ms"),
    }


@dataclass(frozen=True, slots=True)
class Measured:
    """The values of one measure."""

    bar: Bar
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Of the repeats."""
        return statistics.median(self.values)

    @property
    def held(self) -> bool:
        """Whether the median is no more than it may be."""
        return self.median <= self.bar.most

    def row(self) -> tuple[str, ...]:
        """For the table; without a spread where there is one value only."""
        ends = (min(self.values), max(self.values)) if len(self.values) > 1 else ()
        spread = [self.bar.shown(end) for end in ends] or [DASH, DASH]
        most = self.bar.shown(self.bar.most)
        return (
            *(self.bar.about, self.bar.shown(self.median), *spread),
            *(most, "yes" if self.held else "NO"),
        )

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; shares and seconds."""
        return {
            "measure": self.bar.about,
            "unit": "share" if self.bar.unit == "%" else "s",
            "values": list(self.values),
            "median": self.median,
            "at_most": self.bar.most,
            "held": self.held,
        }


def measured(values: Mapping[str, Sequence[float]], plan: Plan) -> dict[str, Measured]:
    """What was measured, in the order of the table."""
    return {
        name: Measured(bar, tuple(values[name]))
        for name, bar in bars(plan).items()
        if values.get(name)
    }


def told(cost: AppCost) -> str:
    """For a terminal."""
    found = measured(cost.values, cost.plan)
    lines = [*head(setup.machine(), cost.asked), ""]
    table = Table("", COLUMNS, tuple(it.row() for it in found.values()))
    missed = [it.bar.about for it in found.values() if not it.held]
    verdict = (
        f"held: {len(found)} of {len(found)}"
        if not missed
        else f"held: {len(found) - len(missed)} of {len(found)}; not: {'; '.join(missed)}"
    )
    after = ["", verdict, *notes(cost)]
    return (
        "".join(f"{line}\n" for line in lines)
        + table.text()
        + "".join(f"{line}\n" for line in after)
    )


def head(machine: Mapping[str, Any], asked: Asked) -> Iterator[str]:
    """What was measured on what."""
    versions = machine["versions"]
    yield (
        f"{machine['chip']}, {machine['cores']} cores, MLX {versions['mlx']} on "
        f"{machine['backend']}, macspec {versions['macspec']}"
    )
    drafts = f"drafts of {asked.depth}" if asked.depth else "plain decoding"
    yield one_line(
        f"{' '.join(asked.models)}; greedy, {drafts}, replies of at most {asked.max_tokens} tokens"
    )


def notes(cost: AppCost) -> Iterator[str]:
    """How to read the table, and what to doubt."""
    if cost.replies:
        yield speeds(cost.replies)
    if cost.keys:
        kinds = (f"{kind} {1e3 * late(times):.0f} ms" for kind, times in cost.keys.items())
        yield f"keys by kind, p95: {', '.join(kinds)}"
    if any(run.text != app.text for run, app in cost.replies):
        yield "NOT EQUAL: the app and macspec run did not write the same text"
    if any(min(run.tokens, app.tokens) < FEW for run, app in cost.replies):
        yield f"replies of fewer than {FEW} tokens say little about speed: --prompt gives another"
    if {"core", "panel", "streamed", "opened", "line"} & set(cost.values):
        yield (
            "paced, and freezes: the whole app, before a stand-in for the engine that says a "
            "made-up text; a freeze is how late a timer of its event loop came"
        )
    yield "medians over the repeats, with the least and the most of them"


def speeds(replies: Sequence[tuple[Decoded, Decoded]]) -> str:
    """What the loss of speed is made of."""
    run, app = (
        statistics.median([it.tokens_per_s or 0.0 for it in arm])
        for arm in zip(*replies, strict=True)
    )
    tokens = statistics.median([it.tokens for it, _ in replies])
    return f"macspec run {run:.1f} tok/s, the app {app:.1f}, over {tokens:g} tokens; in turn"


def document(cost: AppCost, command: Sequence[str], seconds: float) -> dict[str, Any]:
    """The whole of it, ready for JSON, without any text."""
    plan, asked = cost.plan, cost.asked
    return {
        "kind": KIND,
        "format": FORMAT,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(command),
        "complete": cost.complete,
        "seconds": seconds,
        "machine": setup.machine(),
        "load_after": setup.load(),
        "models": list(asked.models),
        "depth": asked.depth,
        "max_tokens": asked.max_tokens,
        "seed": asked.seed,
        "repeats": plan.repeats,
        "measures": {name: it.as_dict() for name, it in measured(cost.values, plan).items()},
        "keys": {kind: list(times) for kind, times in cost.keys.items()},
        "replies": [
            {
                "run_tokens": run.tokens,
                "run_tokens_per_s": run.tokens_per_s,
                "app_tokens": app.tokens,
                "app_tokens_per_s": app.tokens_per_s,
                "equal": run.text == app.text,
            }
            for run, app in cost.replies
        ],
    }
