"""What the app costs: one measure after the other, in turn, as often as is asked for."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..protocol import Step
from .paced import Wish
from .plan import CORE, FREEZES, KEYS, SPEED, START, Plan
from .real import Asked, Decoded, RealApp, run
from .stage import REGENERATE, STOP, Stage

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
        length = round(4 * PACE * 2 * (plan.seconds + 4 * plan.settle) + 1_000)
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
