"""The arms of macspec itself: any method, depth and acceptance rule; plain is one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..depth import CostCurve, Ledger, Survival
from ..events import Prefilled, Round
from ..kernels import Kernels
from ..models import Pair
from ..sampling import Sampling
from ..session import Session
from ..stats import Counters
from .arm import Question
from .costs import Costs
from .sample import Tally, Written

WARM_UP = 24
"""Tokens of the reply that only warms up."""


class Own:
    """Replies of a session of its own for each temperature, as in a chat that goes on.

    What its controller learns of costs and acceptance it keeps from reply to reply. It knows no
    past replies: with them it would draft from its own answers to the same question.

    Args:
        name: how reports call it.
        pair: from ``load_pair``.
        method, depth, rule, kv_bits, kernels: as for ``Session``.
        costs: what passes cost, as the engine measures it when it is idle.
        clock: seconds.
    """

    def __init__(
        self,
        name: str,
        pair: Pair,
        *,
        method: str = "auto",
        depth: int | str = "auto",
        rule: str = "block",
        kv_bits: int | None = None,
        kernels: Kernels | str = "auto",
        costs: Costs | None = None,
        clock: Callable[[], float] = time.perf_counter,
        session: type[Session] = Session,
    ) -> None:
        self.name = name
        self._pairs = {True: pair, False: replace(pair, stop_ids=frozenset())}
        self._method, self._depth, self._rule = method, depth, rule
        self._kv_bits, self._kernels, self._clock = kv_bits, kernels, clock
        self._known = None if costs is None else _Known(costs)
        self._type = session
        self._sessions: dict[tuple[float, bool], Session] = {}
        self.session(Sampling(), True)  # what cannot be is refused before anything is measured

    def session(self, sampling: Sampling, ends: bool) -> Session:
        """The session of a temperature."""
        key = sampling.temperature, ends
        if key not in self._sessions:
            self._sessions[key] = self._type(
                self._pairs[ends],
                method=self._method,
                depth=self._depth,
                rule=self._rule,
                kv_bits=self._kv_bits,
                ledger=self._known,
                clock=self._clock,
                kernels=self._kernels,
            )
        return self._sessions[key]

    def why_not(self, question: Question, sampling: Sampling) -> str | None:
        return None

    def prepare(self, questions: Sequence[Question], sampling: Sampling, ends: bool) -> None:
        for question in questions[:1]:
            short = replace(question, max_tokens=min(WARM_UP, question.max_tokens))
            self.write(short, replace(sampling, seed=0), ends)
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
                tally.count(
                    now,
                    len(event.tokens),
                    event.drafter,
                    event.drafted,
                    event.accepted,
                    event.idle_seconds,
                )
        finished = session.finished
        assert finished is not None
        return Written.of(
            tally, list(finished.token_ids), finished.text, finished.reason, idle=True
        )

    def describe(self) -> Mapping[str, Any]:
        return {
            "program": "macspec",
            "method": self._method,
            "depth": self._depth,
            "rule": self._rule,
            "kv_bits": self._kv_bits,
        }

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()


class _Known(Ledger):
    """Gives every session the same measured costs, and keeps nothing."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs

    def load(self, curve: CostCurve, survival: Survival) -> None:
        curve.restore(self._costs.as_curve())

    def save(self, curve: CostCurve, survival: Survival) -> None:
        """What one arm learns is its own."""
