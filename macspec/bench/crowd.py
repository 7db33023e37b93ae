"""Several sessions that write at the same time: independent, on one target, in one process.

They take turns on one thread: each in its turn is given until its next round has landed. Its round
after that is in the device's queue by then, behind the others'. Nothing is batched: every session
has its own caches, and its passes are its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..events import Event, Round
from ..models import Pair
from ..sampling import Sampling
from ..session import Session
from ..stats import Counters
from .arm import Question
from .costs import Costs
from .own import WARM_UP, Known
from .sample import Tally, Written
from .statistics import median
from .way import Way


class Crowd:
    """So many sessions at once, whose tokens count together.

    Their questions are the one that is asked and those after it. What is measured is the time in
    which all of them write: from when each has its first token until the first is done. Replies
    run to their limit, so that this time is long.

    Args:
        name: how reports call it.
        pair: from ``load_pair``.
        count: how many.
        way: how each drafts and judges.
        costs: what passes cost, as for one session alone.
        clock: seconds.
    """

    def __init__(
        self,
        name: str,
        pair: Pair,
        count: int,
        way: Way,
        *,
        costs: Costs | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.name = name
        self._clock, self._way = clock, way
        endless = replace(pair, stop_ids=frozenset())
        known = None if costs is None else Known(costs)
        self._sessions = [way.session(endless, clock, known) for _ in range(count)]
        self._questions: list[Question] = []

    def why_not(self, question: Question, sampling: Sampling) -> str | None:
        return None

    def prepare(self, questions: Sequence[Question], sampling: Sampling, ends: bool) -> None:
        self._questions = list(questions)
        if not questions:
            return
        self.write(_short(questions[0]), replace(sampling, seed=0), ends)
        for session in self._sessions if self._way.chooses else ():
            for _ in session.measure():
                pass

    def write(self, question: Question, sampling: Sampling, ends: bool) -> Written:
        start = self._clock()
        writers = [
            _Writer(session, it, replace(sampling, seed=(sampling.seed or 0) + number))
            for number, (session, it) in enumerate(
                zip(self._sessions, self._asked(question), strict=True)
            )
        ]
        try:
            first = [writer.round() for writer in writers]
            tally = Tally(Counters(start, prompt_tokens=len(question.ids)))
            tokens = sum(len(it.tokens) for it in first if it is not None)
            tally.count(self._clock(), tokens, None, 0, 0, 0.0)
            waits: list[float] = []
            landed = [self._clock()] * len(writers)
            going = True
            while going:
                for number, writer in enumerate(writers):
                    it = writer.round()
                    if it is None:
                        going = False
                        break
                    now = self._clock()
                    tally.round(now, it)
                    waits += [1e3 * (now - landed[number]) / len(it.tokens)] * len(it.tokens)
                    landed[number] = now
        finally:
            for writer in writers:
                writer.close()
        written = Written.of(tally, [], "", "length", idle=False)
        waits.sort()
        stats = replace(
            written.stats,
            itl_ms_median=median(waits),
            itl_ms_p95=waits[int(0.95 * (len(waits) - 1))] if waits else None,
        )
        return replace(written, stats=stats)

    def describe(self) -> Mapping[str, Any]:
        return {
            **self._way.describe(),
            "sessions_at_once": len(self._sessions),
            "turns": "one thread, a round each in turn; nothing is batched",
            "end_of_text": "ignored",
        }

    def close(self) -> None:
        for session in self._sessions:
            session.close()

    def _asked(self, question: Question) -> list[Question]:
        """The question and those after it, each as long as it."""
        ids = [it.id for it in self._questions]
        at = ids.index(question.id) if question.id in ids else 0
        count = len(self._questions)
        others = [self._questions[(at + turn) % count] for turn in range(1, len(self._sessions))]
        return [question, *(replace(it, max_tokens=question.max_tokens) for it in others)]


class _Writer:
    """One of them at its reply."""

    def __init__(self, session: Session, question: Question, sampling: Sampling) -> None:
        session.forget()
        self._events: Generator[Event, None, None] = session.reply(
            question.asked,
            sampling,
            max_tokens=question.max_tokens,
            raw=question.task.raw,
            forced=question.forced,
        )

    def round(self) -> Round | None:
        """Its next round; None where the reply is over."""
        return next((event for event in self._events if isinstance(event, Round)), None)

    def close(self) -> None:
        self._events.close()


def _short(question: Question) -> Question:
    limit = min(question.max_tokens, WARM_UP)
    forced = None if question.forced is None else question.forced[:limit]
    return replace(question, max_tokens=limit, forced=forced)
