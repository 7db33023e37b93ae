"""The arms of macspec itself: one session, several at once, and where a round's time goes."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import cycle
from time import perf_counter
from typing import Any

import mlx.core as mx

from ..constraint import Constraint
from ..control import ControlState, Plan
from ..decode import Decoder
from ..drafters import DraftModel, Proposal
from ..events import Event, Prefilled, Round
from ..io import Kept
from ..kernels import Kernels
from ..models import Pair
from ..noise import Noise
from ..rounds import Dispatcher, InFlightRound, Reply
from ..sampling import Sampling
from ..session import Session
from ..stats import ReplyCounter
from ..verification import Verdict
from .costs import Costs, curve_of
from .questions import Arm, Question
from .sample import ReplyRecorder, Written


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """The settings of ``Session`` that an arm has."""

    method: str = "auto"
    depth: int | str = "auto"
    rule: str = "block"
    trees: bool = True
    kv_bits: int | None = None
    kernels: Kernels | str = "auto"

    @property
    def chooses(self) -> bool:
        """Whether the controller decides how deep to draft."""
        return self.method != "off" and self.depth == "auto"

    def session(self, pair: Pair, state: ControlState | None = None) -> Session:
        """A session that knows no past replies.

        With them it would draft from its own answers to the same question.

        Raises:
            BadOptionError: this pair cannot do it.
        """
        return Session(pair, **self._settings, state=state, kernels=self.kernels)

    def describe(self) -> dict[str, Any]:
        return {"program": "macspec", **self._settings}

    @property
    def _settings(self) -> dict[str, Any]:
        names = [it.name for it in fields(self) if it.name != "kernels"]
        return {name: getattr(self, name) for name in names}


class MacspecArm(Arm):
    """Replies of one session for each temperature, as in a chat that goes on.

    What its controller learns of costs and acceptance it keeps from reply to reply.

    Args:
        costs: what passes cost, as the engine measures it when idle.
        learned: controller state of an earlier run by temperature; ``close`` brings it up to date.
            The arm then also measures costs after each reply, as an idle chat does.

    Raises:
        BadOptionError: this pair cannot do it.
    """

    def __init__(
        self,
        name: str,
        pair: Pair,
        config: DecodeConfig,
        *,
        costs: Costs | None = None,
        learned: dict[str, Any] | None = None,
    ) -> None:
        self.name, self.pair, self.config = name, pair, config
        self._pairs = {True: pair, False: replace(pair, stop_ids=frozenset())}
        self._known = None if costs is None else KnownCosts(costs)
        self._learned = learned
        self._sessions: dict[tuple[float, bool], Session] = {}
        self.session(Sampling(), True)  # refuse the impossible before anything is measured

    def session(self, sampling: Sampling, ends: bool) -> Session:
        key = sampling.temperature, ends
        if key not in self._sessions:
            state: ControlState | None = self._known
            if self._learned is not None:
                state = LearnedState(self._learned, f"{sampling.temperature:g}")
            self._sessions[key] = self.config.session(self._pairs[ends], state)
        return self._sessions[key]

    def prepare(self, questions: Sequence[Question], sampling: Sampling, ends: bool) -> None:
        super().prepare(questions, sampling, ends)
        if questions and self.config.chooses:
            _measure_costs(self.session(sampling, ends))

    def write(self, question: Question, sampling: Sampling, ends: bool) -> Written:
        session = self.session(sampling, ends)
        recorder = ReplyRecorder(counter=ReplyCounter(prompt_tokens=len(question.ids)))
        for event in asked(session, question, sampling, on_overflow="refuse"):
            if isinstance(event, Prefilled):
                recorder.counter.cached_tokens = event.cached_tokens
            elif isinstance(event, Round):
                recorder.round(recorder.last + event.seconds, event)
        finished = session.finished
        assert finished is not None
        if self._learned is not None:
            _measure_costs(session)
        return recorder.written(finished.token_ids, finished.text, finished.reason, knows_idle=True)

    def describe(self) -> Mapping[str, Any]:
        return self.config.describe()

    def close(self) -> None:
        for session in self._sessions.values():
            if session.stats.replies:
                session.remember()
            session.close()
        self._sessions.clear()


def asked(
    session: Session, question: Question, sampling: Sampling, **more: Any
) -> Generator[Event, None, None]:
    """The events of the reply to a question, from a cold cache."""
    session.forget()
    return session.reply(
        question.asked,
        sampling,
        max_tokens=question.max_tokens,
        raw=question.task.raw,
        forced=question.forced,
        **more,
    )


def _measure_costs(session: Session) -> None:
    for _ in session.measure(math.inf):
        pass


class KnownCosts(ControlState):
    """Gives every session the same measured costs, and keeps nothing."""

    def __init__(self, costs: Costs) -> None:
        self._stored = curve_of(costs).as_dict()

    def load(self, curve: Kept, acceptance: Kept) -> None:
        curve.restore(self._stored)

    def save(self, curve: Kept, acceptance: Kept) -> None:
        """What one arm learns is its own."""


class LearnedState(ControlState):
    """Controller state kept in an entry of a document."""

    def __init__(self, learned: dict[str, Any], key: str) -> None:
        self._learned, self._key = learned, key

    def load(self, curve: Kept, acceptance: Kept) -> None:
        if stored := self._learned.get(self._key):
            curve.restore(stored["costs"])
            acceptance.restore(stored["survival"])

    def save(self, curve: Kept, acceptance: Kept) -> None:
        self._learned[self._key] = {"costs": curve.as_dict(), "survival": acceptance.as_dict()}


class ConcurrentArm(Arm):
    """So many sessions at once, whose tokens count together.

    Their questions are the one that is asked and those after it. What is measured is the time in
    which all of them write: from when each has its first token until the first is done. Replies
    run to their limit, so that this time is long.

    Args:
        costs: what passes cost, as for one session alone.
    """

    def __init__(
        self, name: str, pair: Pair, count: int, config: DecodeConfig, costs: Costs | None = None
    ) -> None:
        self.name, self._config = name, config
        endless = replace(pair, stop_ids=frozenset())
        known = None if costs is None else KnownCosts(costs)
        self._sessions = [config.session(endless, known) for _ in range(count)]
        self._questions: list[Question] = []

    def prepare(self, questions: Sequence[Question], sampling: Sampling, ends: bool) -> None:
        self._questions = list(questions)
        super().prepare(questions, sampling, ends)
        for session in self._sessions if questions and self._config.chooses else ():
            _measure_costs(session)

    def write(self, question: Question, sampling: Sampling, ends: bool) -> Written:
        start = perf_counter()
        replies = [
            asked(session, it, replace(sampling, seed=(sampling.seed or 0) + number))
            for number, (session, it) in enumerate(
                zip(self._sessions, self._asked(question), strict=True)
            )
        ]
        recorder = ReplyRecorder(start, ReplyCounter(prompt_tokens=len(question.ids)))
        waits: list[tuple[float, int]] = []
        try:
            first = [_next_round(reply) for reply in replies]
            recorder.count(perf_counter(), sum(len(it.tokens) for it in first if it is not None))
            done = [perf_counter()] * len(replies)
            for number, reply in cycle(enumerate(replies)):
                it = _next_round(reply)
                if it is None:
                    break
                now, tokens = perf_counter(), len(it.tokens)
                recorder.round(now, it)
                waits.append(((now - done[number]) / tokens, tokens))
                done[number] = now
        finally:
            for reply in replies:
                reply.close()
        # Whoever reads one of the replies waits for that one's rounds.
        recorder.counter.token_seconds = waits
        return recorder.written()

    def describe(self) -> Mapping[str, Any]:
        return {
            **self._config.describe(),
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


def _next_round(reply: Generator[Event, None, None]) -> Round | None:
    return next((event for event in reply if isinstance(event, Round)), None)


class SplitDecoder(Decoder):
    """Takes the place of a session's decoder; waits for what it drafted before it verifies, and
    then for the verdict."""

    def __init__(self, decoder: Decoder, kv_bits: int | None) -> None:
        lookups = [it for it in decoder.portfolio.drafters.values() if it.name != DraftModel.name]
        super().__init__(
            decoder.pair, kv_bits, lookups, decoder.controller, decoder.clock, decoder.kernels
        )
        self.settings = decoder.settings
        self.parts: list[tuple[float, float]] = []
        """Seconds of drafting and verifying, of each round of the reply."""
        self._began = 0.0

    def launch(
        self, reply: Reply, plan: Plan, behind: InFlightRound | None = None
    ) -> InFlightRound:
        self._began = self.clock()
        return super().launch(reply, plan, behind)

    def can_prefetch(self, reply: Reply, flight: InFlightRound, plan: Plan) -> bool:
        return False

    def verify(
        self,
        proposal: Proposal,
        noise: Noise | None,
        token: mx.array | None,
        dispatch: Dispatcher,
        constraint: Constraint | None = None,
    ) -> tuple[Verdict, mx.array]:
        mx.eval(proposal.tokens)
        drafted = self.clock()
        verdict, logits = super().verify(proposal, noise, token, dispatch, constraint)
        mx.eval(verdict.accepted, verdict.token)
        self.parts.append((drafted - self._began, self.clock() - drafted))
        return verdict, logits


def profile(
    pair: Pair, config: DecodeConfig, questions: Sequence[Question], sampling: Sampling
) -> dict[str, Any]:
    """Milliseconds of a round and its parts, ready for JSON; ``host`` is all but the models' work.

    Replies run to their limit. The first of them only warms up, if there are others, and rounds
    that read a prompt are left out.
    """
    endless = replace(pair, stop_ids=frozenset())
    session = config.session(endless)
    session.decoder = decoder = SplitDecoder(session.decoder, config.kv_bits)
    rounds: list[tuple[float, float, float]] = []
    for number, question in enumerate(questions):
        decoder.parts.clear()
        events = asked(session, question, replace(sampling, seed=number))
        whole = [event.seconds for event in events if isinstance(event, Round)]
        if number > 0 or len(questions) == 1:
            parts = zip(whole, decoder.parts, strict=False)
            rounds += [(seconds, *both) for seconds, both in list(parts)[1:]]
    sums = map(sum, zip(*rounds, strict=True)) if rounds else (0.0, 0.0, 0.0)
    whole_ms, draft, verify = (1e3 * it / max(len(rounds), 1) for it in sums)
    return {
        "rounds": len(rounds),
        "draft_ms": draft,
        "verify_ms": verify,
        "host_ms": max(whole_ms - draft - verify, 0.0),
        "round_ms": whole_ms,
    }
