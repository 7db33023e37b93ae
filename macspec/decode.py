"""The decoding loop: draft, verify in one pass, accept, commit, roll back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import mlx.core as mx

from .choices import MODELS, outlook
from .constraint import Constraint
from .control import OFF, PLAIN, Controller, Plan
from .divergence import choice_scores, score_margin
from .drafters import Context, Drafter, DraftModel, MaskedModel, Portfolio, Proposal
from .drafters.ofpair import drafters_of
from .errors import GpuLostError
from .events import Event, Prefilling, TokenLogprob
from .kernels import Kernels
from .metal.faults import FAULT, gpu_answers
from .models.cached import PASS_TAIL, CachedModel, TreePass
from .models.pair import Pair
from .models.prefill import PrefillChunk
from .noise import Noise
from .power import ClockWatch
from .rounds import Dispatcher, DoneRound, InFlightRound, Reply, chain_part
from .settings import Settings
from .text import common_prefix
from .verification import Tree, Verdict
from .verification.match import forced

UNDRAFTED = 32
"""Newest tokens of which the target's logits are kept, to learn from when idle."""

EMPTY = Proposal(mx.array([], mx.uint32))
"""The proposal of plain decoding."""


class Decoder:
    """A target, its drafters, and the tokens they have in common.

    At every event, and after an exception anywhere, ``tokens`` is what has been committed, and
    ``rollback(len(tokens))`` brings every cache to a prefix of it.

    Args:
        kv_bits: quantize the target's keys and values to this many bits.
        lookups: the drafters that run no model.
        clock: seconds, for the statistics.
        kernels: what passes are computed with; None: MLX's own.
    """

    def __init__(
        self,
        pair: Pair,
        kv_bits: int | None,
        lookups: Sequence[Drafter],
        controller: Controller,
        clock: Callable[[], float],
        kernels: Kernels | None = None,
    ) -> None:
        self.kernels = kernels or Kernels()
        self._faults = self.kernels.faults
        self.clock = clock
        self.sleep = ClockWatch()
        """Notices when the machine slept: times taken meanwhile are invalid."""
        self.controller = controller
        self.settings = Settings()
        self.tokens: list[int] = []
        self.prompted = 0
        """Tokens of the newest prompt."""
        self.seed = 0
        """Of the newest reply."""
        self.undrafted: dict[int, mx.array] = {}
        """Where the block rule judges, the target's logits [1, V] of the newest tokens that were
        committed without a draft, by position."""
        self.chunk = PrefillChunk(pair.plan.chunk)
        spread = pair.target.spread
        self.target = (CachedModel if spread is None else spread.model)(
            pair.target.module,
            pair.vocabulary,
            kv_bits=kv_bits,
            kernels=self.kernels,
            chunk=self.chunk,
        )
        self.trees: TreePass | None = None
        """Passes over trees; None until the model has been tested for them."""
        self.portfolio = Portfolio({drafter.name: drafter for drafter in lookups})
        self._why: str | None = None
        self.change_draft(pair)

    def decode(self, reply: Reply) -> Iterator[Event]:
        """Rounds until the reply is over.

        A round is launched behind a plain one that is still in flight, else once the one before is
        committed, and in any case before the events of that one.
        """
        plan = self.plan(reply)
        flight, first, replayed = self.launch(reply, plan), True, False
        while True:
            behind = None
            if self.can_prefetch(reply, flight, plan):
                behind = self.launch(reply, plan, behind=flight)
            result = flight.wait()  # the one host synchronisation
            done = reply.commit(flight, result, self.clock(), first)
            settings = self.settings
            scored: tuple[TokenLogprob, ...] = ()
            try:
                if behind is None:
                    # The next pass begins with the newest token, which may be a drafted one.
                    self.keep(flight, result.path[: len(done.tokens) - (reply.reason is None)])
                self.observe(reply, done, first, flight.prefetched + (behind is not None), replayed)
                replayed = self.target.cache.replays and result.accepted < flight.drafted
                self.tokens += done.tokens
                if reply.reason is None:
                    if not self.controller.resting:
                        plan = self.plan(reply)
                    flight = behind or self.launch(reply, plan)
                scored = reply.scored(done)
            finally:  # What was committed is shown, whatever happens to the next round.
                yield from done.events(reply, scored)
            if reply.reason is not None:
                return
            if self.settings is not settings:
                self.rollback(len(self.tokens) - 1)
                plan = self.plan(reply)
                flight = self.launch(reply, plan)
            first = False

    def prefill(
        self, reply: Reply, prompt: list[int], boundaries: Sequence[int] = ()
    ) -> Iterator[Event]:
        """Read the prompt except its tail, which the first round's pass takes in; with the draft
        model too, where the reply should gain from that.

        Args:
            boundaries: positions, ascending, at which caches that cannot go back anywhere get a
                checkpoint.
        """
        self.renew()
        self.rollback(min(common_prefix(self.tokens, prompt), len(prompt) - 1))
        self.target.recall()
        self.tokens, self.prompted, self.seed = prompt, len(prompt), reply.seed
        self.undrafted.clear()
        if not reply.counter.passes:
            reply.counter.cached_tokens = self.target.length
        self.sleep.jumped()  # a sleep before the reply is none of its own
        drafters = self.portfolio.models(self.settings.method)
        enough = max([len(prompt) - PASS_TAIL, *boundaries])
        reader = self.prompt_reader(reply)
        models = [self.target, *(it.stepper for it in drafters if it.name == reader)]
        while slow := [model for model in models if model.length < enough]:
            begun, before = self.clock(), sum(model.length for model in slow)
            for model in slow:
                model.read_next(prompt, boundaries)
            mx.synchronize()
            mx.clear_cache()
            rows = sum(model.length for model in slow) - before
            self.chunk.took(rows / len(slow), self.clock() - begun)
            yield Prefilling(min(model.length for model in models), len(prompt))

    def launch(
        self, reply: Reply, plan: Plan, behind: InFlightRound | None = None
    ) -> InFlightRound:
        """Dispatch a round.

        Args:
            behind: a plain round in flight, whose token is not known yet; ``plan`` is plain then.
        """
        answer = None
        if reply.forced is not None:
            answer = reply.forced[len(reply.ids) + (behind is not None) :]
        reply.passes += 1
        self._why = plan.why
        keep_logits = reply.logprobs is not None or self._keeps_undrafted(reply, plan)
        number = reply.passes - 1
        return self.dispatched(
            plan,
            reply.seed,
            number,
            behind,
            answer,
            keep_logits=keep_logits,
            constraint=reply.constraint,
        )

    def dispatched(
        self,
        plan: Plan,
        seed: int = 0,
        number: int = 0,
        behind: InFlightRound | None = None,
        answer: Sequence[int] | None = None,
        given: Proposal | None = None,
        keep_logits: bool = False,
        constraint: Constraint | None = None,
    ) -> InFlightRound:
        """A round as above, of no reply.

        Args:
            number: of the pass, for its noise.
            answer: what the target is taken to choose.
            given: the proposal, instead of the drafter's.
        """
        sampling, rule = self.settings.sampling, self.settings.acceptance_rule
        landed = partial(self._landed, self.kernels.in_use.begin())
        dispatch = Dispatcher(self.clock)
        noise = None
        if not sampling.greedy:
            position = len(self.tokens) + (behind is not None)
            noise = Noise(seed, number, position, plan.depth + 1, self.pair.vocabulary)
        draft_noise = None if noise is None or plan.depth == 0 else rule.draft_noise(noise)
        draw = self.kernels.draw(rule, sampling, noise) if plan.depth else None
        walks = self.kernels.walks(rule, sampling, noise) if plan.depth else None
        proposal = given
        if proposal is None and plan.drafter is not None:
            # Temperature and truncation leave the best token, which is all that is asked for.
            own = sampling if draft_noise is not None else replace(sampling, temperature=0.0)
            context = Context(self.tokens, own, draft_noise, rule.keeps_q, dispatch, draw, walks)
            proposal = self.portfolio.propose(plan, context)
        proposal = proposal or EMPTY

        token = None if behind is None else behind.token
        verdict, logits = self.verify(proposal, noise, token, dispatch, constraint)
        if answer is not None:
            verdict = forced(answer, proposal.tokens, verdict)
        kept = logits if keep_logits else None
        prefetched = behind is not None
        return InFlightRound.launch(plan, proposal, verdict, dispatch, prefetched, kept, landed)

    @property
    def stale(self) -> bool:
        """Whether the GPU had a fault since the caches were last known to be sound, here or in
        another conversation."""
        return self._faults != self.kernels.faults

    def _landed(self, round: set[str]) -> None:
        self.kernels.landed(round)
        if self.stale:
            raise RuntimeError(f"{FAULT} in another conversation")

    def renew(self) -> None:
        """Forget what was computed before a fault, if there was one.

        Raises:
            GpuLostError: nothing more is computed.
        """
        if not self.stale:
            return
        with suppress(RuntimeError):  # Of other work that was under way.
            mx.synchronize()
        if not gpu_answers():
            raise GpuLostError
        self._faults = self.kernels.faults
        self.rollback(0)
        self.tokens = []

    def verify(
        self,
        proposal: Proposal,
        noise: Noise | None,
        token: mx.array | None,
        dispatch: Dispatcher,
        constraint: Constraint | None = None,
    ) -> tuple[Verdict, mx.array]:
        """One pass of the target over a proposal, the rule's verdict on it, and its logits.

        Args:
            token: [1], the newest token, where the host does not know it yet.
            constraint: on a chain; the host then waits for the drafted tokens, and finds out what
                may follow them while the target reads them.
        """
        sampling, rule = self.settings.sampling, self.settings.acceptance_rule
        if token is None:
            unread, since = self.target.unread(self.tokens), proposal.tokens
        else:
            unread = since = token
        if proposal.parents is not None:
            assert self.trees is not None
            tree = Tree(proposal.tokens, proposal.parents)
            recent = None
            if sampling.penalised:
                recent = tree.recent(self.tokens, sampling.penalty_context)
            logits = self.trees.logits(unread, tree)
            return self.kernels.follow(sampling, logits, tree, noise, recent), logits
        rows = proposal.tokens.shape[0] + 1
        early = dispatch if token is None else None
        read = unread if rows == 1 else mx.concatenate([unread, proposal.tokens])
        logits = self.target.logits(read, rows, early)
        recent = sampling.recent(self.tokens, since, rows)
        judged = logits
        if constraint is not None:
            dispatch(proposal.tokens)
            dispatch(logits)
            drafted: Any = proposal.tokens.tolist()
            self.kernels.check()
            judged = constraint.masked(logits, drafted)
        verdict = self.kernels.accept(
            rule, sampling, judged, proposal.tokens, proposal.log_q, noise, recent
        )
        return verdict, logits

    @property
    def why(self) -> str:
        """The reason for the newest plan; before the first one, what is known of it."""
        if self._why is not None:
            return self._why
        return self.target.cache.reason or outlook(self.settings.method, self.settings.depth)

    @property
    def checkpoints(self) -> bool:
        """Whether going far back takes checkpoints, of the target or of its draft model."""
        steppers = (drafter.stepper for drafter in self.portfolio.models("auto"))
        models = [
            self.target,
            *(it.model for it in steppers if isinstance(it, DraftModel | MaskedModel)),
        ]
        return any(model.cache.checkpoints for model in models)

    def change_draft(self, pair: Pair) -> None:
        """Draft with the models of a pair with this target, or without any if it has none."""
        self.pair = pair
        self.chunk.most = pair.plan.chunk
        for name in MODELS:
            self.portfolio.drafters.pop(name, None)
        # Also why one that was asked for is off.
        found, self.draft_off = drafters_of(pair, self.target, self.chunk)
        self.portfolio.drafters.update({it.name: it for it in found})

    def score_margin(self, tokens: list[int], choices: Sequence[int]) -> tuple[float, float]:
        """The best score after ``tokens`` minus the lowest one of the choices, and the rounding
        tolerance."""
        self.renew()
        self.rollback(min(common_prefix(self.tokens, tokens), len(tokens) - 1))
        self.tokens = tokens
        round = self.kernels.in_use.begin()
        scores, tolerance = choice_scores(self.target, tokens, self.settings.sampling)
        self.kernels.landed(round)
        self.rollback(len(tokens) - 1)
        return score_margin(scores, choices), tolerance

    def can_prefetch(self, reply: Reply, flight: InFlightRound, plan: Plan) -> bool:
        """Whether the next round can be launched before this one's token is known: both plain."""
        more = reply.limit - len(reply.ids) > 1
        plain = flight.drafted == 0 and plan.depth == 0
        more &= reply.constraint is None  # Its mask follows from that token.
        return more and plain and (self.settings.method == "off" or self.controller.pipelines)

    def prompt_reader(self, reply: Reply) -> str | None:
        """The drafter whose model reads the prompt before the first round, if any does."""
        if self.target.cache.reason is not None or self.settings.depth == 0:
            return None
        drafters = self.portfolio.models(self.settings.method)
        return self.controller.reader(
            [it.offer(self.tokens, soon=True) for it in drafters],
            length=len(self.tokens),
            limit=reply.limit - 1,
            depth=None if isinstance(self.settings.depth, str) else self.settings.depth,
        )

    def plan(self, reply: Reply) -> Plan:
        """The drafter and depth of the next round."""
        settings = self.settings
        if self.target.cache.reason is not None:
            return PLAIN._replace(why=self.target.cache.reason)
        if settings.method == "off" or settings.depth == 0:
            return OFF
        self.controller.curve.sampled = not settings.sampling.greedy
        self.controller.objective = settings.objective
        offers = self.portfolio.offers(self.tokens, settings.method)
        trees = settings.trees and self.trees is not None and self.trees.reason is None
        # A tree's tokens are candidates, not draws, and the block rule wants draws.
        drawn = not settings.sampling.greedy and settings.acceptance_rule.keeps_q
        free = reply.forced is None and reply.constraint is None
        if trees and not drawn and free:
            offers = [replace(it, branches=True) if it.drafter in MODELS else it for it in offers]
        return self.controller.choose(
            offers,
            length=len(self.tokens),
            limit=reply.limit - len(reply.ids) - 1,
            depth=None if isinstance(settings.depth, str) else settings.depth,
        )

    def observe(
        self, reply: Reply, done: DoneRound, first: bool, overlaps: int, replayed: bool
    ) -> None:
        """Report a round to the drafters and the controller.

        Args:
            first: it took in the end of the prompt, too.
            overlaps, replayed: as in ``Controller.observe_cost``.
        """
        flight, result, committed = done.flight, done.result, done.tokens
        plan, accepted, slept = flight.plan, chain_part(result.path), self.sleep.jumped()
        reply.counter.slept |= slept
        took = None if first or slept else done.seconds
        learn = self.controller.acceptance.observe
        self.controller.observe_cost(
            plan, flight.depth, len(committed), took, overlaps, replayed, done.idle
        )
        if plan.drafter is not None:
            self.portfolio.observe(plan, committed, flight.depth, accepted)
            # One token comes without a draft, too. Where the reply ends in the chain, that is the
            # end itself; what was drafted from there on gains as little as a rejected token.
            gained = min(accepted, len(committed) - 1)
            learn(plan.drafter, plan.bucket, flight.depth, gained)
            if flight.tree and accepted == plan.branch and accepted < len(committed):
                learn(f"{plan.kind}", plan.bucket, 1, int(result.accepted > accepted))
        if flight.logits is not None and self._keeps_undrafted(reply, plan):
            self.undrafted[len(self.tokens)] = flight.logits
            if len(self.undrafted) > UNDRAFTED:
                del self.undrafted[min(self.undrafted)]
        considered = self.controller.last.length == len(self.tokens)
        if self.settings.method == "auto" and considered:
            shadows = self.portfolio.shadows(plan, self.tokens, result.tokens)
            for offer, drafted, agreed in shadows:
                learn(offer.drafter, offer.bucket, drafted, agreed)

    def _keeps_undrafted(self, reply: Reply, plan: Plan) -> bool:
        sampling, rule = self.settings.sampling, self.settings.acceptance_rule
        drawn = rule.keeps_q and not sampling.greedy and reply.constraint is None
        return drawn and plan.drafter is None and bool(self.portfolio.models(self.settings.method))

    def try_trees(self) -> str | None:
        """Find out, once, why the target cannot verify trees; None if it can."""
        if self.trees is None:
            self.trees = self.target.trees()
        return self.trees.reason

    def keep(self, flight: InFlightRound, path: list[int]) -> None:
        """Keep the accepted tokens in the caches, and roll back the others."""
        length = len(self.tokens)
        if flight.tree:
            assert self.trees is not None
            self.trees.keep(path)
        else:
            self.target.rollback(length + len(path))
        # A drafter's state follows its own chain, which comes first; the rest it reads anew.
        self.portfolio.rollback(length + chain_part(path))

    def rollback(self, length: int) -> None:
        """Bring the target and every drafter back to the first ``length`` tokens."""
        self.target.rollback(length)
        self.portfolio.rollback(length)
