"""Noticing that an engine no longer answers: what is silent for how long, and what to do then."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..events import Notice, Round
from ..parent import state_of
from .messages import PairChoice

TICK = 0.5
"""Seconds between two looks at a silent engine."""

STOPPED = 2.0
"""Seconds of silence after which it is asked whether the process is stopped."""

OBEYED = 2.0
"""Seconds in which a request to stop must be obeyed."""

LOADING = 15.0
"""Seconds of silence in a load: progress is reported for every few hundred megabytes."""

PREFILL = 60.0
"""Seconds of silence before the first round of a reply, which reads the prompt."""

ROUND = 5.0
"""Least seconds of silence between two rounds that are noticed."""

HUNG = 30.0
"""Seconds of silence that no round of macspec's kernels takes."""

OFTEN = 10
"""A silence so many times the longest one between two rounds is noticed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a look at a silent engine has found."""

    notice: Notice | None = None
    """A line for the user."""
    hopeless: bool = False
    """Whether it is to be ended."""
    hung: bool = False
    """Whether it is to be ended if it runs macspec's kernels."""


class Watch:
    """Watches the call that the engine works on now.

    Args:
        is_stopped: whether the process of this id is stopped by a signal.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        is_stopped: Callable[[int], bool] | None = None,
    ) -> None:
        self._clock, self._is_stopped = clock, is_stopped or stopped
        self._heard = self._alive = clock()
        self._longest = 0.0
        self._rounds = False
        self._said = self._insisted = False
        self._asked_to_stop: float | None = None

    def begin(self) -> None:
        """The engine turns to another call."""
        self._heard = self._alive = self._clock()
        self._longest, self._rounds = 0.0, False
        self._said = self._insisted = False
        self._asked_to_stop = None

    def stop(self) -> None:
        """The call was asked to end; a second time: at once."""
        now = self._clock()
        if self._asked_to_stop is None:
            self._asked_to_stop = now
        self._insisted = now - self._asked_to_stop >= OBEYED

    def alive(self) -> None:
        """Something has arrived, of whatever call."""
        self._alive = self._clock()

    def hear(self, event: Any) -> Notice | None:
        """An event of the call has arrived; returns what to say if that was in doubt."""
        silent, said = self._clock() - self._heard, self._said
        if isinstance(event, Round):
            if self._rounds and not said:
                self._longest = max(self._longest, silent)
            self._rounds = True
        self._heard, self._said = self._clock(), False
        return Notice("the engine goes on") if said else None

    def look(self, command: object, pid: int | None) -> Verdict:
        """What to do about the silence of an engine that works on a command."""
        now = self._clock()
        silent = now - self._heard
        frozen = pid is not None and silent >= STOPPED and self._is_stopped(pid)
        hung = now - self._alive >= HUNG and not frozen
        if self._asked_to_stop is not None:
            waited = now - max(self._asked_to_stop, self._heard)
            at_once = isinstance(command, PairChoice) or frozen or self._said or self._insisted
            late = waited >= (OBEYED if at_once else self._limit(command))
            return Verdict(hopeless=late, hung=hung)
        if self._said or not (frozen or silent >= self._limit(command)):
            return Verdict(hung=hung)
        self._said = True
        if frozen:
            what = f"the engine is stopped by a signal: kill -CONT {pid} lets it go on"
        elif isinstance(command, PairChoice):
            what = f"loading takes longer than expected: nothing was read for {silent:.0f} s"
        else:
            what = f"the engine has been silent for {silent:.0f} s"
        said = Notice(f"{what}; stopping it (Esc or Ctrl-C) keeps the text so far")
        return Verdict(said, hung=hung)

    def _limit(self, command: object) -> float:
        if isinstance(command, PairChoice):
            return LOADING
        return max(ROUND, OFTEN * self._longest) if self._rounds else PREFILL


def stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal."""
    return state_of(pid) == "T"
