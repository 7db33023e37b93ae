"""What the app costs: the measures in turn, and the table that holds each to its gate."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paced import Wish
from realapp import Asked, Decoded, RealApp, run
from stage import REGENERATE, STOP, Stage

from macspec.bench import document as setup
from macspec.bench.run import Step
from macspec.cli.table import DASH, Table
from macspec.plaintext import one_line

SPEED, CORE, START, KEYS, FREEZES = PARTS = ("speed", "core", "start", "keys", "freezes")
"""What can be measured alone."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured, and how much of it."""

    parts: tuple[str, ...] = PARTS
    repeats: int = 5
    seconds: float = 4.0
    """Over which the share of a core is taken, with the panel and without it."""
    keys: int = 24
    """Pressed in each repeat."""
    characters: int = 200_000
    """Of the huge reply."""
    line: int = 5_000
    """Characters of the long line."""
    turns: int = 40
    """Earlier ones."""
    fit: bool = True
    """Whether replies are made longer where decoding is fast."""
    settle: float = 0.7
    """Seconds after a change until its follow-up work is done."""


UNSET = ("COLUMNS", "LINES", "NO_COLOR", "SSH_CONNECTION", "SSH_TTY", "TMUX")
"""Variables that would make the app another one here than there."""

PACE = 30.0
"""Tokens a second of an ordinary reply."""

LONG, MOST = 5.0, 1_600
"""Seconds of a reply, and tokens."""


@dataclass
class AppCost:
    """Measures. Whatever ends it, what was measured until then is in ``values`` and ``replies``.

    Args:
        asked: what a real pair is asked.
        plan: how much of it.
        folder: an empty one, for all that the app keeps.
    """

    asked: Asked
    plan: Plan
    folder: Path
    values: dict[str, list[float]] = field(default_factory=dict)
    """By measure; see ``table.bars``."""
    replies: list[tuple[Decoded, Decoded]] = field(default_factory=list)
    """What ``macspec run`` and what the app made of it, in turn."""
    keys: dict[str, list[float]] = field(default_factory=dict)
    """Seconds of every key, by its kind."""
    _began: float = field(default_factory=time.monotonic)
    _done: int = 0
    _whole: bool = False

    def run(self) -> Iterator[Step]:
        """Measure, telling of each step before it is taken.

        Raises:
            MacspecError: the pair cannot be used, or the app did not do what it should.
        """
        parts, repeats = self.plan.parts, range(self.plan.repeats)
        real = [part for part in (SPEED, START, KEYS) if part in parts]
        if real:
            # Imports, kernels and whatever else is only done once.
            yield self._step("a first reply, which does not count")
            first = run(self.asked, self._real)
            if self.plan.fit:
                self.asked = replace(self.asked, max_tokens=fitting(first, self.asked))
        for repeat in repeats:
            if SPEED in parts:
                yield self._step("macspec run")
                plain = run(self.asked, self._real)
            if real:
                yield self._step("the app with this pair")
                with RealApp(self.asked, self.folder / "real", self._real, self.plan.settle) as app:
                    self._put("start", app.usable())
                    app.ready()
                    if SPEED in parts:
                        self.replies.append((plain, app.reply()))
                        self._speed(*self.replies[-1])
                    elif KEYS in parts:
                        app.reply()  # there must be one to ask for again
                    if KEYS in parts:
                        times = app.key_times(self.plan.keys, random.Random(repeat))
                        self._put("keys", late([seconds for _, seconds in times]))
                        for kind, seconds in times:
                            self.keys.setdefault(kind, []).append(seconds)
                    self._put("leave", app.leave())
            if FREEZES in parts:
                yield self._step("the app with a huge reply")
                self._freezes(repeat)
        if CORE in parts:
            yield from self._cores()
        self._whole = True

    @property
    def complete(self) -> bool:
        """Whether all was measured."""
        return self._whole

    @property
    def _real(self) -> Mapping[str, str]:
        return {**_clean(), "MACSPEC_HOME": str(self.folder / "real")}

    @property
    def _total(self) -> int:
        parts = self.plan.parts
        real = bool({SPEED, START, KEYS} & set(parts))
        each = (SPEED in parts) + real + (FREEZES in parts) + (CORE in parts)
        return real + self.plan.repeats * each

    def _step(self, what: str) -> Step:
        done, self._done = self._done, self._done + 1
        taken = time.monotonic() - self._began
        left = taken / done * (self._total - done) if done > 1 else None
        return Step(done, self._total, left, what)

    def _put(self, name: str, value: float) -> None:
        part = START if name in ("start", "leave") else name
        if part in self.plan.parts:
            self.values.setdefault(name, []).append(value)

    def _speed(self, plain: Decoded, app: Decoded) -> None:
        if plain.tokens_per_s and app.tokens_per_s:
            self._put(SPEED, 1 - app.tokens_per_s / plain.tokens_per_s)

    def _freezes(self, repeat: int) -> None:
        plan = self.plan
        folder = self.folder / f"huge{repeat}"
        with self._stage(folder, plan.characters, watch=True) as app:
            app.begin()
            looks = {
                "line": app.streamed(Wish(plan.line, 1_200, 12, line=True)),
                "streamed": app.streamed(Wish(plan.characters, 10_000, 100)),
                "opened": app.opened(),
            }
        for name, look in looks.items():
            self.values.setdefault(name, []).append(look.worst)

    def _stage(self, folder: Path, characters: int, *, watch: bool = False) -> Stage:
        plan = self.plan
        return Stage(
            folder,
            _clean(),
            characters=characters,
            watch=watch,
            turns=plan.turns,
            settle=plan.settle,
        )

    def _cores(self) -> Iterator[Step]:
        plan = self.plan
        length = round(4 * PACE * 2 * (plan.seconds + 4 * plan.settle) + 10_000)
        with self._stage(self.folder / "paced", 100) as app:
            app.begin()
            for repeat in range(plan.repeats):
                yield self._step("the app with a paced reply")
                if repeat:
                    app.terminal.press(REGENERATE)
                else:
                    app.ask(Wish(length, PACE))
                shown, hidden = app.shares(plan.seconds, hidden_first=repeat % 2 == 1)
                self.values.setdefault("core", []).append(shown)
                self.values.setdefault("panel", []).append(shown - hidden)
                app.terminal.press(STOP)
                app.terminal.look_on(plan.settle)


def late(times: Sequence[float]) -> float:
    """The time that 95 % of these do not exceed, between the two closest."""
    if len(times) < 2:
        return times[0]
    return statistics.quantiles(times, n=20, method="inclusive")[-1]


def fitting(first: Decoded, asked: Asked) -> int:
    """The longest reply to ask for: some seconds of it, and no more than fits the context."""
    speed = first.tokens_per_s or 0.0
    return round(min(max(asked.max_tokens, speed * LONG), MOST))


def _clean() -> dict[str, str]:
    """This process's environment without what the user has set for macspec and for a screen."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in UNSET and not name.startswith("MACSPEC_")
    }


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
        "start": Bar("start of the process to a prompt that echoes", 0.8, "s"),
        "leave": Bar("key to the end of the process", 0.5, "s"),
        "keys": Bar("key to what it shows while a reply streams, p95", 0.08, "ms"),
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
        "load_after": setup.load_average(),
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
