"""The choice before each round: which drafter, how deep, or plain."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..choices import MAX_DEPTH
from .acceptance import AcceptanceEstimate
from .cost import BRANCHED, RUN, CostCurve, candidates


@dataclass(frozen=True, slots=True)
class Offer:
    """What a drafter could do in the next round, known before anything is drafted."""

    drafter: str
    room: int
    """Deepest proposal."""
    bucket: int
    """Its confidence, 0 to ``BUCKETS`` - 1: from its score or its recent acceptance."""
    unread: int = 0
    """Committed tokens that its model must read first."""
    branches: bool = False
    """Whether a token of its chain may get a sibling."""


class Plan(NamedTuple):
    """What a round drafts with and how deep; depth 0 is plain decoding."""

    drafter: str | None
    depth: int
    length: int = 0
    """Committed tokens at the time of the choice."""
    bucket: int = 0
    unread: int = 0
    """Both from the offer."""
    branch: int | None = None
    """Which drafted token gets a sibling, 0 the first; None: a chain."""
    expected: float = 1.0
    """Tokens that the round should yield."""
    cost: float = 1.0
    """Plain steps that it should take."""
    amortised: float = 0.0
    """The part of the cost from which later rounds gain: reading the text into a draft model."""
    probe: bool = False
    """Whether it tests if drafting pays, or what a plain step costs."""
    why: str = ""
    """The reason, in one sentence."""

    @property
    def kind(self) -> str | None:
        """The drafter, marked where its chain has a branch."""
        if self.drafter is None or self.branch is None:
            return self.drafter
        return self.drafter + BRANCHED

    @property
    def worth(self) -> float:
        """Tokens for the time of a plain step."""
        return self.expected / (self.cost - self.amortised)

    @property
    def loss(self) -> float:
        """Plain steps lost if none of its tokens is accepted."""
        return self.cost - 1


PLAIN = Plan(None, 0, why="not drafting")

OFF = PLAIN._replace(why="not drafting: speculation is off")


def outlook(method: str, depth: int | str) -> str:
    """How the first round will draft, as far as that is known, in one sentence."""
    if method == "off" or depth == 0:
        return OFF.why
    drafter = {"auto": "any drafter", "draft": "the draft model"}.get(method, method)
    deep = "at a depth chosen each round" if depth == "auto" else f"at depth {depth}"
    return f"waiting for the first round: {drafter} {deep}"


MARGIN = 1.02
"""Speculation must promise this much over plain decoding, as estimates are noisy."""

DEEPER = 1.015
"""A deeper round must promise this much over a shallower one, which reaches the screen sooner."""

PROBES = 0.02
"""Share of plain time that probes may lose, while drafting may well pay."""

RARE = 0.005
"""The same while drafting is unlikely to pay; each failed probe halves it."""

RAREST = 0.001
"""The least to which it is halved."""

BUDGET = 4.0
"""Plain steps that can be saved up for probes."""

HICCUP = 3.0
"""A probe is charged at most this many times its expected cost."""

CREDIT = 1.0
"""Most plain steps that a successful probe pays back into the budget."""

DOUBTS = 2.0
"""Standard errors by which drafting may be better than estimated."""

REPLY = 64.0
"""Assumed length of a reply in tokens, until some have ended."""

SHARE = 0.2
"""Weight of the newest reply in the average length."""

FADE = 0.05
"""Weight of the newest round in a running average."""

CHECK = 96
"""Rounds without a plain one after which one is taken, to measure what plain costs now."""

PIPELINED = RUN + 2
"""Plain rounds that follow an unpipelined one, to compare the two; the outer ones say nothing."""

PLAIN_PROBE = PLAIN._replace(probe=True, why="not drafting: timing a plain step")

Use = tuple[int, int | None, float, float]
"""Depth, position of a branch, expected tokens, cost."""


class Controller:
    """Maximises expected tokens over expected seconds, one round at a time.

    A plan depends only on what is known before the round: costs, acceptance so far, and what the
    drafters offer. So every acceptance rule stays exact under it.
    """

    def __init__(self, curve: CostCurve, acceptance: AcceptanceEstimate) -> None:
        self.curve = curve
        self.acceptance = acceptance
        self.last = PLAIN
        self._probe_share = PROBES
        self._rare_share = RARE
        self._probe_budget = 0.0
        self._since_plain = 0
        self._pipelined = 0
        """Rounds still to come in a pipelined run that is compared with an unpipelined round."""
        self._missed = 0.0
        self._reply = REPLY

    def choose(
        self, offers: Sequence[Offer], length: int, limit: int, depth: int | None = None
    ) -> Plan:
        """The plan of the next round. Asking twice gives the same answer.

        Args:
            length: committed tokens.
            limit: most drafted tokens that the reply can use.
            depth: fixed depth; None: it is chosen too.
        """
        useful = [offer for offer in offers if min(offer.room, limit) > 0]
        if not useful:
            self.last = PLAIN._replace(
                length=length, why="not drafting: no match in the text so far"
            )
            return self.last
        plans = (self._best(offer, length, limit, depth) for offer in useful)
        best = max(plans, key=_by_worth)
        if depth is not None:
            self.last = _explained(best)
        elif self._pipelined > 0:
            self.last = PLAIN_PROBE._replace(length=length)
        elif best.expected < MARGIN * (best.cost - best.amortised + self._leaving):
            probe = self._probe(useful, length, limit)
            self.last = probe or PLAIN._replace(length=length, why=_against(best))
        elif self.curve.plain.at(length) is None or self._since_plain >= CHECK:
            self.last = PLAIN_PROBE._replace(length=length)
        else:
            self.last = _explained(best)
        return self.last

    def should_prefill(
        self, offer: Offer, length: int, limit: int, depth: int | None = None
    ) -> bool:
        """Whether a draft model should read the prompt before the first round.

        It should where the reply is expected to gain more than the reading takes, if it is as long
        as recent ones are on average, or ``REPLY`` tokens if that is more.

        Args:
            offer: of the draft model, at its usual confidence.
        """
        room = min(offer.room, limit)
        if room <= 0 or depth is not None:
            return room > 0
        plan = self._best(replace(offer, unread=0), length, limit, None)
        left = min(max(self._reply, REPLY), limit + 1)
        gained = left * (1 - MARGIN * plan.cost / plan.expected)
        return gained > self.curve.catching_up(offer.drafter, offer.unread)

    def observe_cost(
        self,
        plan: Plan,
        drafted: int,
        committed: int,
        seconds: float,
        overlaps: int = 0,
        replayed: bool = False,
    ) -> None:
        """Learn what a round cost.

        Args:
            drafted: verified tokens of the chain, of which there may be fewer than planned.
            seconds: since the result of the round before.
            overlaps: 1 if it was itself prefetched, plus 1 if the next one was.
            replayed: it began with the replay of rows that the round before kept.
        """
        kind = plan.kind if drafted else None
        self.curve.observe(kind, drafted, plan.length, seconds, plan.unread, overlaps, replayed)
        if drafted:
            self._pipelined = 0
            self._since_plain += 1
            if plan.probe:
                took = seconds / (self.curve.plain.newest or seconds)
                gained = committed - min(took, HICCUP * plan.cost)
                self._probe_budget = min(self._probe_budget + min(gained, CREDIT), BUDGET)
                self._rare_share = RARE if gained > 0 else max(self._rare_share / 2, RAREST)
            return
        self._since_plain = 0
        self._probe_budget = min(self._probe_budget + self._probe_share, BUDGET)
        if self._pipelined > 0:
            self._pipelined -= 1
        elif overlaps == 0 and self.curve.plain.needs_comparison:
            self._pipelined = PIPELINED
        best = self.last
        missed = 1 - best.cost / best.expected if best.depth > 0 else 0.0
        self._missed += FADE * (max(missed, 0.0) - self._missed)

    def observe_acceptance(self, drafter: str, bucket: int, drafted: int, accepted: int) -> None:
        """Learn how many tokens of a chain were accepted, or would have been."""
        self.acceptance.observe(drafter, bucket, drafted, accepted)

    def observe_branch(self, plan: Plan, accepted: bool) -> None:
        """Learn whether the sibling was accepted where the token beside it was rejected."""
        self.acceptance.observe(f"{plan.drafter}{BRANCHED}", plan.bucket, 1, int(accepted))

    def reply_ended(self, tokens: int) -> None:
        self._pipelined = 0
        self._reply += SHARE * (tokens - self._reply)

    @property
    def pipelines(self) -> bool:
        """Whether a plain round should be launched before the token that it follows is known.

        It saves the device a wait, and loses look-up matches that begin with that token.
        """
        if self._pipelined > 0 or self.last.probe:
            return self._pipelined > 1
        plain = self.curve.plain
        return plain.newest is not None and self._missed < plain.unpipelined - 1

    @property
    def _leaving(self) -> float:
        """What it costs to interrupt a run of pipelined plain rounds: the device waits after it."""
        pipelined = self._since_plain == 0 and self.pipelines
        return self.curve.plain.unpipelined - 1 if pipelined else 0.0

    def _best(
        self, offer: Offer, length: int, limit: int, depth: int | None, doubts: float = 0.0
    ) -> Plan:
        """The best use of an offer whose tokens are ``doubts`` standard errors better than
        estimated."""
        name, bucket = offer.drafter, offer.bucket
        room = min(offer.room, limit)
        depths = candidates(room) if depth is None else (min(depth, room),)
        tokens = self.acceptance.expected(name, bucket, MAX_DEPTH)
        hoped = self.acceptance.expected(name, bucket, MAX_DEPTH, doubts) if doubts else tokens
        costs = self.curve.rounds(name, depths, length)
        replay = self.curve.replay
        uses: list[Use] = [
            # Unless the whole chain is accepted, a replay follows.
            (d, None, hoped[d], cost + replay * (1 - tokens[d] + tokens[d - 1]))
            for d, cost in zip(depths, costs, strict=True)
        ]
        if offer.branches:
            uses += self._branched(offer, length, hoped, uses)
        reading = self.curve.catching_up(name, offer.unread)
        left = min(self._reply, limit + 1)
        worth, best = 0.0, uses[0]
        for use in uses:
            # This round is charged with its share of the reading.
            charged = reading * tokens[use[0]] / left
            spent = use[3] + (charged if charged < reading else reading)
            if use[2] > worth * spent * (DEEPER if use[0] > best[0] else 1.0):
                worth, best = use[2] / spent, use
        d, at, expected, cost = best
        return Plan(
            drafter=name,
            depth=d,
            length=length,
            bucket=bucket,
            unread=offer.unread,
            branch=at,
            expected=expected,
            cost=cost + reading,
            amortised=reading * max(1 - tokens[d] / left, 0.0),
        )

    def _branched(
        self, offer: Offer, length: int, tokens: Sequence[float], chains: Sequence[Use]
    ) -> list[Use]:
        """The same chains with a sibling where each is most likely rejected."""
        name, kind = offer.drafter, f"{offer.drafter}{BRANCHED}"
        rejected = [
            2 * b - a - c for a, b, c in zip([0.0, *tokens], tokens, tokens[1:], strict=False)
        ]
        chance = self.acceptance.chance(kind, offer.bucket, 0)
        depths = [depth for depth, *_ in chains if depth < MAX_DEPTH]
        extra = map(
            operator.sub,
            self.curve.rounds(kind, depths, length),
            self.curve.rounds(name, depths, length),
        )
        places = [max(range(depth), key=rejected.__getitem__) for depth in depths]
        return [
            (depth, at, expected + rejected[at] * chance, cost + more)
            for (depth, _, expected, cost), at, more in zip(chains, places, extra, strict=False)
        ]

    def _probe(self, offers: Sequence[Offer], length: int, limit: int) -> Plan | None:
        """A round with a draft model, if the probe budget covers what it should lose; look-ups are
        compared with every token as it is."""
        models = [offer for offer in offers if self.curve.step(offer.drafter) > 0]
        if not models:
            return None
        probes = [self._best(offer, length, limit, None, DOUBTS) for offer in models]
        best = max(probes, key=_by_worth)
        pays = best.worth >= 1
        self._probe_share = PROBES if pays else self._rare_share
        if not pays:
            probes = [self._best(offer, length, limit, None) for offer in models]
            best = max(probes, key=_by_worth)
        if best.loss > self._probe_budget:
            return None
        why = f"{best.drafter}: probing whether drafting pays again"
        return best._replace(probe=True, why=why)


def _explained(plan: Plan) -> Plan:
    branch = "" if plan.branch is None else " with a branch"
    return plan._replace(
        why=f"{plan.drafter} at depth {plan.depth}{branch}: {plan.worth:.2f}× plain expected"
    )


_by_worth = operator.attrgetter("worth")


def _against(best: Plan) -> str:
    return (
        f"not drafting: {best.drafter} at depth {best.depth} would run at {best.worth:.2f}× plain"
    )
