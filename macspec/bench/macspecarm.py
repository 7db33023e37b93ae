"""The arms of macspec itself: one session, several at once, and where a round's time goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx

from ..control import AcceptanceEstimate, ControlState, CostCurve, Plan
from ..decode import Decoder
from ..drafters import Proposal
from ..events import Event, Prefilled, Round
from ..kernels import Kernels
from ..models import Pair
from ..noise import Noise
from ..rounds import Dispatcher, InFlightRound, Reply
from ..sampling import Sampling
from ..session import Session
from ..stats import Counters
from ..verification import Verdict
from .cells import median
from .costs import Costs
from .questions import Question
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

    def session(
        self,
        pair: Pair,
        clock: Callable[[], float],
        state: ControlState | None = None,
        decoder_type: type[Decoder] = Decoder,
    ) -> Session:
        """A session that knows no past replies.

        With them it would draft from its own answers to the same question.

        Raises:
            BadOptionError: this pair cannot do it.
        """
        return Session(
            pair,
            method=self.method,
            depth=self.depth,
            rule=self.rule,
            trees=self.trees,
            kv_bits=self.kv_bits,
            state=state,
            clock=clock,
            kernels=self.kernels,
            decoder_type=decoder_type,
        )

    def describe(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "program": "macspec",
            "method": self.method,
            "depth": self.depth,
            "rule": self.rule,
            "trees": self.trees,
            "kv_bits": self.kv_bits,
        }


WARM_UP = 24
"""Tokens of the reply that only warms up."""


class MacspecArm:
    """Replies of a session of its own for each temperature, as in a chat that goes on.

    What its controller learns of costs and acceptance it keeps from reply to reply.

    Args:
        name: how reports call it.
        pair: from ``load_pair``.
        config: how it drafts and judges.
        costs: what passes cost, as the engine measures it when it is idle.
        clock: seconds.

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
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.name, self.pair, self.config = name, pair, config
        self._pairs = {True: pair, False: replace(pair, stop_ids=frozenset())}
        self._known = None if costs is None else KnownCosts(costs)
        self._clock = clock
        self._sessions: dict[tuple[float, bool], Session] = {}
        self.session(Sampling(), True)  # what cannot be is refused before anything is measured

    def session(self, sampling: Sampling, ends: bool) -> Session:
        """The session of a temperature."""
        key = sampling.temperature, ends
        if key not in self._sessions:
            self._sessions[key] = self.config.session(self._pairs[ends], self._clock, self._known)
        return self._sessions[key]

    def why_not(self, question: Question, sampling: Sampling) -> str | None:
        return None

    def prepare(self, questions: Sequence[Question], sampling: Sampling, ends: bool) -> None:
        for question in questions[:1]:
            short = replace(question, max_tokens=min(WARM_UP, question.max_tokens))
            self.write(short, replace(sampling, seed=0), ends)
            if self.config.chooses:
                # A chat's idle moments.
                for _ in self.session(sampling, ends).measure():
                    pass

    def write(self, question: Question, sampling: Sampling, ends: bool) -> Written:
        session = self.session(sampling, ends)
        session.forget()
        recorder = ReplyRecorder(Counters(0.0, prompt_tokens=len(question.ids)))
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
                recorder.counters.cached_tokens = event.cached_tokens
            elif isinstance(event, Round):
                now += event.seconds
                recorder.round(now, event)
        finished = session.finished
        assert finished is not None
        return Written.of(
            recorder, list(finished.token_ids), finished.text, finished.reason, idle=True
        )

    def describe(self) -> Mapping[str, Any]:
        return self.config.describe()

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()


class KnownCosts(ControlState):
    """Gives every session the same measured costs, and keeps nothing."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs

    def load(self, curve: CostCurve, acceptance: AcceptanceEstimate) -> None:
        curve.restore(self._costs.as_curve())

    def save(self, curve: CostCurve, acceptance: AcceptanceEstimate) -> None:
        """What one arm learns is its own."""


class ConcurrentArm:
    """So many sessions at once, whose tokens count together.

    Their questions are the one that is asked and those after it. What is measured is the time in
    which all of them write: from when each has its first token until the first is done. Replies
    run to their limit, so that this time is long.

    Args:
        name: how reports call it.
        pair: from ``load_pair``.
        count: how many.
        config: how each drafts and judges.
        costs: what passes cost, as for one session alone.
        clock: seconds.
    """

    def __init__(
        self,
        name: str,
        pair: Pair,
        count: int,
        config: DecodeConfig,
        *,
        costs: Costs | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.name = name
        self._clock, self._config = clock, config
        endless = replace(pair, stop_ids=frozenset())
        known = None if costs is None else KnownCosts(costs)
        self._sessions = [config.session(endless, clock, known) for _ in range(count)]
        self._questions: list[Question] = []

    def why_not(self, question: Question, sampling: Sampling) -> str | None:
        return None

    def prepare(self, questions: Sequence[Question], sampling: Sampling, ends: bool) -> None:
        self._questions = list(questions)
        if not questions:
            return
        self.write(_short(questions[0]), replace(sampling, seed=0), ends)
        for session in self._sessions if self._config.chooses else ():
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
            recorder = ReplyRecorder(Counters(start, prompt_tokens=len(question.ids)))
            tokens = sum(len(it.tokens) for it in first if it is not None)
            recorder.count(self._clock(), tokens, None, 0, 0, 0.0)
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
                    recorder.round(now, it)
                    waits += [1e3 * (now - landed[number]) / len(it.tokens)] * len(it.tokens)
                    landed[number] = now
        finally:
            for writer in writers:
                writer.close()
        written = Written.of(recorder, [], "", "length", idle=False)
        waits.sort()
        stats = replace(
            written.stats,
            itl_ms_median=median(waits),
            itl_ms_p95=waits[int(0.95 * (len(waits) - 1))] if waits else None,
        )
        return replace(written, stats=stats)

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


@dataclass(slots=True)
class Split:
    """Seconds of the rounds that read no prompt."""

    rounds: int = 0
    draft: float = 0.0
    verify: float = 0.0
    whole: float = 0.0

    @property
    def host(self) -> float:
        """The rest: choosing, committing, text, events."""
        return max(self.whole - self.draft - self.verify, 0.0)

    def as_dict(self) -> dict[str, Any]:
        """Milliseconds a round, ready for JSON."""
        each = 1e3 / max(self.rounds, 1)
        return {
            "rounds": self.rounds,
            "draft_ms": self.draft * each,
            "verify_ms": self.verify * each,
            "host_ms": self.host * each,
            "round_ms": self.whole * each,
        }


class SplitDecoder(Decoder):
    """A decoder that waits for what it drafted before it verifies, and then for the verdict."""

    def __init__(self, *settings: Any, **more: Any) -> None:
        super().__init__(*settings, **more)
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
    ) -> Verdict:
        mx.eval(proposal.tokens)
        drafted = self.clock()
        verdict = super().verify(proposal, noise, token, dispatch)
        mx.eval(verdict.accepted, verdict.token)
        self.parts.append((drafted - self._began, self.clock() - drafted))
        return verdict


def profile(
    pair: Pair,
    config: DecodeConfig,
    questions: Sequence[Question],
    sampling: Sampling,
    clock: Callable[[], float] = time.perf_counter,
) -> Split:
    """The split of one way to write, over the replies to some questions, which run to their limit.

    The first of them only warms up, if there are others.
    """
    session = config.session(replace(pair, stop_ids=frozenset()), clock, decoder_type=SplitDecoder)
    decoder = session.decoder
    assert isinstance(decoder, SplitDecoder)
    split = Split()
    for number, question in enumerate(questions):
        session.forget()
        decoder.parts.clear()
        events = session.reply(
            question.asked,
            replace(sampling, seed=number),
            max_tokens=question.max_tokens,
            raw=question.task.raw,
            forced=question.forced,
        )
        whole = [event.seconds for event in events if isinstance(event, Round)]
        if number == 0 and len(questions) > 1:
            continue
        for seconds, (draft, verify) in list(zip(whole, decoder.parts, strict=False))[1:]:
            split.rounds += 1
            split.draft += draft
            split.verify += verify
            split.whole += seconds
    return split
