"""The arms of macspec itself: any method, depth and acceptance rule; plain is one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..control import CostCurve, Ledger, Survival
from ..events import Prefilled, Round
from ..models import Pair
from ..sampling import Sampling
from ..session import Session
from ..stats import Counters
from .arm import Question
from .costs import Costs
from .sample import Tally, Written
from .way import Way

WARM_UP = 24
"""Tokens of the reply that only warms up."""


class Own:
    """Replies of a session of its own for each temperature, as in a chat that goes on.

    What its controller learns of costs and acceptance it keeps from reply to reply.

    Args:
        name: how reports call it.
        pair: from ``load_pair``.
        way: how it drafts and judges.
        costs: what passes cost, as the engine measures it when it is idle.
        clock: seconds.

    Raises:
        BadOptionError: this pair cannot do it.
    """

    def __init__(
        self,
        name: str,
        pair: Pair,
        way: Way,
        *,
        costs: Costs | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.name, self.pair, self.way = name, pair, way
        self._pairs = {True: pair, False: replace(pair, stop_ids=frozenset())}
        self._known = None if costs is None else Known(costs)
        self._clock = clock
        self._sessions: dict[tuple[float, bool], Session] = {}
        self.session(Sampling(), True)  # what cannot be is refused before anything is measured

    def session(self, sampling: Sampling, ends: bool) -> Session:
        """The session of a temperature."""
        key = sampling.temperature, ends
        if key not in self._sessions:
            self._sessions[key] = self.way.session(self._pairs[ends], self._clock, self._known)
        return self._sessions[key]

    def why_not(self, question: Question, sampling: Sampling) -> str | None:
        return None

    def prepare(self, questions: Sequence[Question], sampling: Sampling, ends: bool) -> None:
        for question in questions[:1]:
            short = replace(question, max_tokens=min(WARM_UP, question.max_tokens))
            self.write(short, replace(sampling, seed=0), ends)
            if self.way.chooses:
                # A chat's idle moments.
                for _ in self.session(sampling, ends).measure():
                    pass

    def write(self, question: Question, sampling: Sampling, ends: bool) -> Written:
        session = self.session(sampling, ends)
        session.forget()
        tally = Tally(Counters(0.0, prompt_tokens=len(question.ids)))
        now = 0.0
        for event in session.reply(
            question.asked,
            sampling,
            max_tokens=question.max_tokens,
            raw=question.task.raw,
            on_overflow="refuse",
            forced=question.forced,
        ):
            if isinstance(event, Prefilled):
                tally.counters.cached_tokens = event.cached_tokens
            elif isinstance(event, Round):
                now += event.seconds
                tally.round(now, event)
        finished = session.finished
        assert finished is not None
        return Written.of(
            tally, list(finished.token_ids), finished.text, finished.reason, idle=True
        )

    def describe(self) -> Mapping[str, Any]:
        return self.way.describe()

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()


class Known(Ledger):
    """Gives every session the same measured costs, and keeps nothing."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs

    def load(self, curve: CostCurve, survival: Survival) -> None:
        curve.restore(self._costs.as_curve())

    def save(self, curve: CostCurve, survival: Survival) -> None:
        """What one arm learns is its own."""
