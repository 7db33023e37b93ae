"""The decoding loop: draft, verify in one pass, accept, commit, roll back."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import mlx.core as mx

from .depth import PLAIN, Controller, Plan
from .drafters import Context, Drafter, DraftModel, Portfolio, Proposal
from .events import Emitted, Event, Prefilled, Prefilling, Round, Text
from .flight import Dispatcher, Flight, Landing
from .models.cached import PASS_TAIL, PREFILL_CHUNK, CachedModel
from .models.pair import Pair
from .noise import Noise
from .reply import Reply
from .settings import Settings

EMPTY = Proposal(mx.array([], mx.uint32))
"""What plain decoding proposes."""

OFF = replace(PLAIN, why="plain: speculation is off")


class Decoder:
    """A target, its drafters, and the tokens they have in common.

    At every event, and after an exception anywhere, ``tokens`` is what has been committed, and
    ``rollback(len(tokens))`` brings every cache to a prefix of it.

    Args:
        pair: the models.
        kv_bits: quantize the target's keys and values to this many bits.
        lookups: the drafters that run no model.
        controller: chooses what each round drafts with and how deep.
        clock: seconds, for the statistics.
    """

    def __init__(
        self,
        pair: Pair,
        kv_bits: int | None,
        lookups: Sequence[Drafter],
        controller: Controller,
        clock: Callable[[], float],
    ) -> None:
        self.pair = pair
        self.clock = clock
        self.controller = controller
        self.settings = Settings()
        self.tokens: list[int] = []
        self.target = CachedModel(pair.target.module, pair.vocabulary, kv_bits=kv_bits)
        drafters = {drafter.name: drafter for drafter in lookups}
        self.draft_off = pair.draft_off
        """Why there is no draft model, if one was asked for."""
        if pair.draft is not None:
            model = CachedModel(pair.draft.module, pair.vocabulary)
            if model.cache.reason is None:
                drafters[DraftModel.name] = DraftModel(model, pair.draft.context)
            else:
                self.draft_off = (
                    f"the draft model {pair.draft.name} is off: its layers keep a running state, "
                    "and a rejected token cannot be taken out of it"
                )
        self.portfolio = Portfolio(drafters)

    def prefill(self, reply: Reply, prompt: list[int]) -> Iterator[Event]:
        """Read the prompt except its tail, which the first round's pass takes in."""
        self.rollback(min(_common(self.tokens, prompt), len(prompt) - 1))
        self.tokens = prompt
        reply.counters.cached_tokens = self.target.length
        while len(prompt) - self.target.length > PASS_TAIL:
            self.target.read(prompt[self.target.length : -1][:PREFILL_CHUNK])
            mx.synchronize()
            mx.clear_cache()
            yield Prefilling(self.target.length, len(prompt))

    def decode(self, reply: Reply) -> Iterator[Event]:
        """Rounds until the reply is over.

        A round is launched as early as it can be: behind a plain one that is still in the air, else
        once the one before is committed, and in any case before its events are told.
        """
        plan = self.plan(reply)
        flight = self.launch(reply, plan)
        landed_at = flight.began
        while True:
            behind = self.launch(reply, plan, flight) if self.ahead(reply, flight, plan) else None
            landing = flight.land()  # the one host synchronisation
            idle, before = max(flight.began - landed_at, 0), landed_at
            landed_at = self.clock()
            tokens, text = reply.take(landing.tokens)
            if behind is None:
                self.rollback(len(self.tokens) + min(landing.accepted, len(tokens)))
            if reply.counters.passes > 0:  # the first pass takes in the prompt's tail too
                self.controller.clock(flight.plan, flight.depth, landed_at - before, idle)
            self.learn(flight, landing)
            self.tokens += tokens

            done, settings = flight, self.settings
            if reply.reason is None:
                plan = self.plan(reply)
                flight = behind or self.launch(reply, plan)
            yield from _told(reply, done, landing, tokens, text, landed_at, idle)
            if reply.reason is not None:
                return
            if self.settings is not settings:
                self.rollback(len(self.tokens) - 1)
                plan = self.plan(reply)
                flight = self.launch(reply, plan)

    def launch(self, reply: Reply, plan: Plan, behind: Flight | None = None) -> Flight:
        """Dispatch a round; ``behind`` one whose only token is not known yet, it must be plain."""
        sampling, rule = self.settings.sampling, self.settings.rule
        dispatch = Dispatcher(self.clock)
        noise = None
        if not sampling.greedy:
            position = len(self.tokens) + (behind is not None)
            width = self.pair.vocabulary
            noise = Noise(reply.seed, reply.passes, position, plan.depth + 1, width)
        reply.passes += 1

        draft_noise = None if noise is None else rule.draft_noise(noise)
        context = Context(self.tokens, sampling, draft_noise, rule.keeps_q, dispatch)
        proposal = self.portfolio.propose(plan, context) or EMPTY

        if behind is None:
            unread, since = self.target.unread(self.tokens), proposal.tokens
        else:
            unread = since = behind.token
        rows = proposal.tokens.shape[0] + 1
        logits = self.target.logits(mx.concatenate([unread, proposal.tokens]), rows)
        scores = sampling.scores(logits, sampling.recent(self.tokens, since, rows))
        verdict = rule.accept(scores, proposal.tokens, proposal.log_q, noise)
        return Flight.launch(plan, proposal, verdict, dispatch)

    def ahead(self, reply: Reply, flight: Flight, plan: Plan) -> bool:
        """Whether the next round can be launched before this one's token is known.

        Both must be plain. What is lost then is a match that begins with that token.
        """
        more = reply.limit - len(reply.ids) > 1
        plain = flight.depth == 0 and plan.depth == 0
        return more and plain and (self.settings.method == "off" or self.controller.ahead)

    def plan(self, reply: Reply) -> Plan:
        """The drafter and depth of the next round."""
        settings = self.settings
        if self.target.cache.reason is not None:
            return replace(PLAIN, why=self.target.cache.reason)
        if settings.method == "off" or settings.depth == 0:
            return OFF
        return self.controller.choose(
            self.portfolio.offers(self.tokens, settings.method),
            length=len(self.tokens),
            limit=reply.limit - len(reply.ids) - 1,
            depth=None if isinstance(settings.depth, str) else settings.depth,
        )

    def learn(self, flight: Flight, landing: Landing) -> None:
        """Tell the drafters, and the controller, what became of a round's proposal."""
        plan = flight.plan
        self.portfolio.settle(plan, flight.depth, landing.accepted)
        if plan.drafter is not None:
            self.controller.learn(plan.drafter, plan.bucket, flight.depth, landing.accepted)
        if self.settings.method == "auto":
            for offer, drafted, stood in self.portfolio.shadows(plan, self.tokens, landing.tokens):
                self.controller.learn(offer.drafter, offer.bucket, drafted, stood)

    def measure(self) -> Iterator[None]:
        """Measure what the cost curve lacks at this context length, one short look at each step.

        Between two steps everything is as it was, so the rest can be left for another time.
        """
        curve, length = self.controller.curve, len(self.tokens)
        if length == 0 or self.target.cache.reason is not None:
            return
        self.target.unread(self.tokens)
        for rows in curve.missing(length):
            if length + rows <= self.pair.context:
                plain, wide = self._timed(self.target, 1, rows)
                curve.set_pass(rows, length, wide / plain)
                yield
        draft = self.portfolio.drafters.get(DraftModel.name)
        if isinstance(draft, DraftModel) and draft.offer(self.tokens).room > 0:
            draft.model.unread(self.tokens)
            (plain,), (step,) = self._timed(self.target, 1), self._timed(draft.model, 1)
            curve.set_step(DraftModel.name, step / plain)
            yield

    def _timed(self, model: CachedModel, *rows: int, repeats: int = 5) -> list[float]:
        """Median seconds of passes with so many rows each, in turn, each rolled back."""
        seconds: list[list[float]] = [[] for _ in rows]
        length = model.length
        for repeat in range(repeats + 1):
            for count, taken in zip(rows, seconds, strict=True):
                begin = self.clock()
                mx.eval(mx.argmax(model.logits(mx.zeros(count, mx.uint32), count), axis=-1))
                if repeat:  # the first only warms up
                    taken.append(self.clock() - begin)
                model.rollback(length)
        return [statistics.median(taken) for taken in seconds]

    def rollback(self, length: int) -> None:
        """Bring the target and every drafter back to the first ``length`` tokens."""
        self.target.rollback(length)
        self.portfolio.rollback(length)


def _told(
    reply: Reply,
    flight: Flight,
    landing: Landing,
    tokens: list[int],
    text: str,
    landed_at: float,
    idle: float,
) -> Iterator[Event]:
    """Count a round, up to where the reply may have ended inside it, and tell of it."""
    counters, name = reply.counters, flight.plan.drafter
    accepted, drafted = landing.accepted, flight.depth
    if len(tokens) <= accepted:
        accepted = drafted = len(tokens)
    seconds = counters.count(landed_at, len(tokens), drafted, accepted, idle)
    if counters.passes == 1:
        yield Prefilled(counters.prompt_tokens, counters.cached_tokens, seconds)
    origins = (name if i < accepted else None for i in range(len(tokens)))
    yield Text(text, tuple(map(Emitted, tokens, origins)))
    plan = flight.plan
    counters.expect(plan.expected, plan.cost)
    yield Round(
        tokens=tuple(tokens),
        drafter=name,
        depth=plan.depth,
        drafted=drafted,
        accepted=accepted,
        seconds=seconds,
        idle_seconds=idle,
        expected=plan.expected,
        why=plan.why,
    )


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
