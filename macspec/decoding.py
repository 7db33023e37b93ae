"""The decoding loop: draft, verify in one pass, accept, commit, roll back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import mlx.core as mx

from .depth import AUTO_DEPTH, PLAIN, Plan
from .drafters import Context, Drafter, DraftModel, NGram, Proposal
from .events import Emitted, Event, Prefilled, Prefilling, Round, Text
from .flight import Dispatcher, Flight, Landing
from .models.cached import PASS_TAIL, PREFILL_CHUNK, CachedModel
from .models.pair import Pair
from .noise import Noise
from .reply import Reply
from .settings import Settings

EMPTY = Proposal(mx.array([], mx.uint32))
"""What plain decoding proposes."""


class Decoder:
    """A target, its drafters, and the tokens they have in common.

    At every event, and after an exception anywhere, ``tokens`` is what has been committed, and
    ``rollback(len(tokens))`` brings every cache to a prefix of it.

    Args:
        pair: the models.
        kv_bits: quantize the target's keys and values to this many bits.
        ngram: the n-gram drafter.
        clock: seconds, for the statistics.
    """

    def __init__(
        self, pair: Pair, kv_bits: int | None, ngram: NGram, clock: Callable[[], float]
    ) -> None:
        self.pair = pair
        self.clock = clock
        self.settings = Settings()
        self.tokens: list[int] = []
        self.target = CachedModel(pair.target.module, pair.vocabulary, kv_bits=kv_bits)
        self.drafters: dict[str, Drafter] = {ngram.name: ngram}
        self.draft_off = pair.draft_off
        """Why there is no draft model, if one was asked for."""
        if pair.draft is not None:
            model = CachedModel(pair.draft.module, pair.vocabulary)
            if model.cache.reason is None:
                self.drafters[DraftModel.name] = DraftModel(model, pair.draft.context)
            else:
                self.draft_off = (
                    f"the draft model {pair.draft.name} is off: its layers keep a running state, "
                    "and a rejected token cannot be taken out of it"
                )

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
        flight = self.launch(reply, self.plan(reply))
        landed_at = flight.began
        while True:
            behind = self.launch_behind(reply, flight)
            landing = flight.land()  # the one host synchronisation
            idle, landed_at = max(flight.began - landed_at, 0), self.clock()
            tokens, text = reply.take(landing.tokens)
            if behind is None:
                self.rollback(len(self.tokens) + min(landing.accepted, len(tokens)))
            self.tokens += tokens

            done, settings = flight, self.settings
            if reply.reason is None:
                flight = behind or self.launch(reply, self.plan(reply))
            yield from _told(reply, done, landing, tokens, text, landed_at, idle)
            if reply.reason is not None:
                return
            if self.settings is not settings:
                self.rollback(len(self.tokens) - 1)
                flight = self.launch(reply, self.plan(reply))

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

        proposal = None
        if plan.drafter is not None:
            draft_noise = None if noise is None else rule.draft_noise(noise)
            context = Context(self.tokens, sampling, draft_noise, rule.keeps_q, dispatch)
            proposal = self.drafters[plan.drafter].propose(context, plan.depth)
        proposal = proposal or EMPTY

        if behind is None:
            unread, since = self.target.unread(self.tokens), proposal.tokens
        else:
            unread = since = behind.token
        rows = proposal.tokens.shape[0] + 1
        logits = self.target.logits(mx.concatenate([unread, proposal.tokens]), rows)
        scores = sampling.scores(logits, sampling.recent(self.tokens, since, rows))
        verdict = rule.accept(scores, proposal.tokens, proposal.log_q, noise)
        return Flight.launch(plan, proposal, verdict, dispatch)

    def launch_behind(self, reply: Reply, flight: Flight) -> Flight | None:
        """The next round, if this one and it are plain whatever this one's token will be."""
        more = reply.limit - len(reply.ids) > 1
        if more and flight.depth == 0 and self.plan(reply) == PLAIN:
            return self.launch(reply, PLAIN, behind=flight)
        return None

    def plan(self, reply: Reply) -> Plan:
        """The drafter and depth of the next round."""
        settings = self.settings
        if settings.method == "off" or self.target.cache.reason is not None:
            return PLAIN
        depth = AUTO_DEPTH if isinstance(settings.depth, str) else settings.depth
        depth = min(depth, reply.limit - len(reply.ids) - 1)
        name = settings.method
        if name == "auto":
            name = "draft" if self.room("draft") else "ngram"
        depth = min(depth, self.room(name))
        return Plan(name, depth) if depth > 0 else PLAIN

    def room(self, name: str) -> int:
        """How deep a drafter can go now; 0 where there is none of that name."""
        return self.drafters[name].room(len(self.tokens)) if name in self.drafters else 0

    def rollback(self, length: int) -> None:
        """Bring the target and every drafter back to the first ``length`` tokens."""
        self.target.rollback(length)
        for drafter in self.drafters.values():
            drafter.rollback(length)


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
    yield Round(tuple(tokens), name, flight.plan.depth, drafted, accepted, seconds, idle)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
