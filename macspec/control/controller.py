"""The choice before each round: which drafter, how deep, or plain."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..choices import MAX_DEPTH
from .acceptance import Survival
from .cost import BRANCHED, RUN, CostCurve, candidates


@dataclass(frozen=True, slots=True)
class Offer:
    """What a drafter could do in the next round, known before anything is drafted."""

    drafter: str
    room: int
    """Deepest proposal."""
    bucket: int
    """How sure it is, 0 to ``BUCKETS`` - 1: by its score or its recent acceptance."""
    behind: int = 0
    """Committed tokens that its model must read first."""
    branches: bool = False
    """Whether a token of its chain may get a sibling."""


class Plan(NamedTuple):
    """What a round drafts with and how deep; depth 0 is plain decoding."""

    drafter: str | None
    depth: int
    length: int = 0
    """Committed tokens that it was made for."""
    bucket: int = 0
    behind: int = 0
    """Both the offer's."""
    branch: int | None = None
    """Which drafted token gets a sibling, 0 the first; None: a chain."""
    expected: float = 1.0
    """Tokens that the round should bring."""
    cost: float = 1.0
    """Plain steps that it should take."""
    lasting: float = 0.0
    """Of those, what later rounds will gain from: a draft model's reading of the text so far."""
    look: bool = False
    """Whether it is taken to see if drafting pays, or what a plain step costs."""
    why: str = ""
    """The choice in one sentence."""

    @property
    def kind(self) -> str | None:
        """The drafter, and whether a branch grows on its chain."""
        if self.drafter is None or self.branch is None:
            return self.drafter
        return self.drafter + BRANCHED

    @property
    def worth(self) -> float:
        """Tokens for the time of a plain step."""
        return self.expected / (self.cost - self.lasting)

    @property
    def loss(self) -> float:
        """Plain steps that it loses if none of its tokens stands."""
        return self.cost - 1


PLAIN = Plan(None, 0, why="plain")

OFF = PLAIN._replace(why="plain: speculation is off")


def outlook(method: str, depth: int | str) -> str:
    """What is known before the first round of how it will draft, in one sentence."""
    if method == "off" or depth == 0:
        return OFF.why
    who = "the draft model" if method == "draft" else method
    if method == "auto":
        deep = ", and how deep" if depth == "auto" else f" at depth {depth}"
        return f"nothing is decided yet: each round chooses who drafts{deep}"
    if depth == "auto":
        return f"nothing is decided yet: each round chooses how deep {who} drafts"
    return f"nothing was drafted yet: {who} will draft at depth {depth}"


MARGIN = 1.02
"""Speculation must promise this much over plain: estimates are noisy, and plain is never wrong."""

DEEPER = 1.015
"""A deeper round must promise this much over a shallower one: its last tokens are the least known,
and where both are as fast the shallower one is sooner on the screen."""

LOOKS = 0.02
"""Share of plain time that looks at whether drafting pays by now may lose, while it may well."""

RARELY = 0.005
"""The same while it hardly can; each look that fails halves it."""

RAREST = 0.001
"""Where halving ends."""

SAVED = 4.0
"""Plain steps that can be saved up for looks."""

HICCUP = 3.0
"""Most that a look is charged for, over what it should cost."""

REFUND = 1.0
"""Most that a look which brought more than it took gives back."""

DOUBTS = 2.0
"""Standard errors by which drafting may be better than it looks."""

REPLY = 64.0
"""Tokens of a reply, until some have ended."""

SHARE = 0.2
"""Weight of the newest reply in their average length."""

FADE = 0.05
"""Weight of the newest round in a running average."""

CHECK = 96
"""Rounds without a plain one after which one is taken, to know what plain costs now."""

ROW = RUN + 2
"""Plain rounds that follow one by itself, to compare the two: those at the ends tell nothing."""

CHECKING = PLAIN._replace(look=True, why="plain: a look at what a plain step costs")

Use = tuple[int, int | None, float, float]
"""Depth, where a branch grows, expected tokens and cost."""


class Controller:
    """Maximises expected tokens over expected seconds, one round at a time.

    A plan rests on what was known before the round: costs, how often tokens at a position stood
    before, and what the drafters offer. So it anticipates nothing, and every acceptance rule stays
    exact under it.

    Args:
        curve: what rounds cost.
        survival: how likely drafted tokens stand.
    """

    def __init__(self, curve: CostCurve, survival: Survival) -> None:
        self.curve = curve
        self.survival = survival
        self.last = PLAIN
        """The newest plan."""
        self._looks = LOOKS
        self._rarely = RARELY
        self._purse = 0.0
        self._since_plain = 0
        self._row = 0
        """Rounds that are still to come in a row of plain ones."""
        self._missed = 0.0
        self._reply = REPLY

    def choose(
        self, offers: Sequence[Offer], length: int, limit: int, depth: int | None = None
    ) -> Plan:
        """The plan of the next round. Asking twice changes nothing.

        Args:
            offers: what the drafters could do, those with no room included.
            length: committed tokens.
            limit: most drafted tokens that the reply has use for.
            depth: draft so deep, and choose the drafter only; None: choose both.
        """
        useful = [offer for offer in offers if min(offer.room, limit) > 0]
        if not useful:
            self.last = PLAIN._replace(length=length, why="plain: there is nothing to draft with")
            return self.last
        plans = (self._best(offer, length, limit, depth) for offer in useful)
        best = max(plans, key=_by_worth)
        if depth is not None:
            self.last = _explained(best)
        elif self._row > 0:
            self.last = CHECKING._replace(length=length)
        elif best.expected < MARGIN * (best.cost - best.lasting + self._leaving):
            look = self._look(useful, length, limit)
            self.last = look or PLAIN._replace(length=length, why=_against(best))
        elif self.curve.plain.at(length) is None or self._since_plain >= CHECK:
            self.last = CHECKING._replace(length=length)
        else:
            self.last = _explained(best)
        return self.last

    def prepares(self, offer: Offer, length: int, limit: int, depth: int | None = None) -> bool:
        """Whether a draft model should read the prompt before the first round, and not when needed.

        It should if a reply gains more than that takes. How long the reply will be nobody knows: it
        counts as a usual one, or as ``REPLY`` tokens where replies were short of late.

        Args:
            offer: of the draft model, as sure as it usually is.
            length, limit, depth: as for ``choose``.
        """
        room = min(offer.room, limit)
        if room <= 0 or depth is not None:
            return room > 0
        plan = self._best(replace(offer, behind=0), length, limit, None)
        left = min(max(self._reply, REPLY), limit + 1)
        gained = left * (1 - MARGIN * plan.cost / plan.expected)
        return gained > self.curve.catching_up(offer.drafter, offer.behind)

    def clock(
        self,
        plan: Plan,
        drafted: int,
        brought: int,
        seconds: float,
        overlaps: int = 0,
    ) -> None:
        """Learn what a round cost.

        Args:
            drafted: tokens of the chain that were verified; fewer than ``plan.depth`` where the
                drafter had no more.
            brought: tokens that were committed.
            seconds: from the landing before to its own.
            overlaps: 1 if it was launched ahead, and 1 if another was behind it.
        """
        kind = plan.kind if drafted else None
        self.curve.observe(kind, drafted, plan.length, seconds, plan.behind, overlaps)
        if drafted:
            self._row = 0
            self._since_plain += 1
            if plan.look:
                took = seconds / (self.curve.plain.newest or seconds)
                won = brought - min(took, HICCUP * plan.cost)
                self._purse = min(self._purse + min(won, REFUND), SAVED)
                self._rarely = RARELY if won > 0 else max(self._rarely / 2, RAREST)
            return
        self._since_plain = 0
        self._purse = min(self._purse + self._looks, SAVED)
        if self._row > 0:
            self._row -= 1
        elif overlaps == 0 and self.curve.plain.compares:
            self._row = ROW
        best = self.last
        missed = 1 - best.cost / best.expected if best.depth > 0 else 0.0
        self._missed += FADE * (max(missed, 0.0) - self._missed)

    def learn(self, drafter: str, bucket: int, drafted: int, accepted: int) -> None:
        """Learn what stood, or would have, from a round or from committed text alone."""
        self.survival.observe(drafter, bucket, drafted, accepted)

    def learn_branch(self, plan: Plan, stood: bool) -> None:
        """Learn whether the sibling stood where the token beside it fell."""
        self.survival.observe(f"{plan.drafter}{BRANCHED}", plan.bucket, 1, int(stood))

    def ended(self, tokens: int) -> None:
        """A reply ended after so many tokens."""
        self._row = 0
        self._reply += SHARE * (tokens - self._reply)

    @property
    def ahead(self) -> bool:
        """Whether a plain round is best launched before the token that it follows is known.

        It saves the device's wait between two rounds, and loses what a match that begins with that
        token would have saved.
        """
        if self._row > 0 or self.last.look:
            return self._row > 1
        return self.curve.plain.newest is not None and self._missed < self.curve.plain.alone - 1

    @property
    def _leaving(self) -> float:
        """What it costs to break a run of plain rounds that are launched ahead of each other.

        The device waits before this round, which its cost holds, and again after it.
        """
        return self.curve.plain.alone - 1 if self._since_plain == 0 and self.ahead else 0.0

    @property
    def why(self) -> str:
        """Why the newest round does what it does, in one sentence."""
        return self.last.why

    def _best(
        self, offer: Offer, length: int, limit: int, depth: int | None, doubts: float = 0.0
    ) -> Plan:
        """The best use of an offer, if its tokens are so many doubts likelier than they look."""
        name, bucket = offer.drafter, offer.bucket
        room = min(offer.room, limit)
        depths = candidates(room) if depth is None else (min(depth, room),)
        tokens = self.survival.expected(name, bucket, MAX_DEPTH)
        hoped = self.survival.expected(name, bucket, MAX_DEPTH, doubts) if doubts else tokens
        costs = self.curve.rounds(name, depths, length)
        uses: list[Use] = [(d, None, hoped[d], cost) for d, cost in zip(depths, costs, strict=True)]
        if offer.branches:
            uses += self._branched(offer, length, hoped, uses)
        reading = self.curve.catching_up(name, offer.behind)
        left = min(self._reply, limit + 1)
        worth, best = 0.0, uses[0]
        for use in uses:
            # Of the reading, the part that this round's share of the reply is charged with.
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
            behind=offer.behind,
            branch=at,
            expected=expected,
            cost=cost + reading,
            lasting=reading * max(1 - tokens[d] / left, 0.0),
        )

    def _branched(
        self, offer: Offer, length: int, tokens: Sequence[float], chains: Sequence[Use]
    ) -> list[Use]:
        """The same chains with a sibling where each most likely parts from the text."""
        name, kind = offer.drafter, f"{offer.drafter}{BRANCHED}"
        falls = [2 * b - a - c for a, b, c in zip([0.0, *tokens], tokens, tokens[1:], strict=False)]
        stands = self.survival.chance(kind, offer.bucket, 0)
        depths = [depth for depth, *_ in chains if depth < MAX_DEPTH]
        extra = map(
            operator.sub,
            self.curve.rounds(kind, depths, length),
            self.curve.rounds(name, depths, length),
        )
        places = [max(range(depth), key=falls.__getitem__) for depth in depths]
        return [
            (depth, at, expected + falls[at] * stands, cost + more)
            for (depth, _, expected, cost), at, more in zip(chains, places, extra, strict=False)
        ]

    def _look(self, offers: Sequence[Offer], length: int, limit: int) -> Plan | None:
        """A round of a model's drafts, if what it should lose has been saved up.

        Look-ups need no look: what they would have proposed is compared with every token.
        """
        models = [offer for offer in offers if self.curve.step(offer.drafter) > 0]
        if not models:
            return None
        looks = [self._best(offer, length, limit, None, DOUBTS) for offer in models]
        best = max(looks, key=_by_worth)
        pays = best.worth >= 1
        self._looks = LOOKS if pays else self._rarely
        if not pays:
            looks = [self._best(offer, length, limit, None) for offer in models]
            best = max(looks, key=_by_worth)
        if best.loss > self._purse:
            return None
        why = f"{best.drafter}: a look at whether drafting pays by now"
        return best._replace(look=True, why=why)


def _explained(plan: Plan) -> Plan:
    branch = "" if plan.branch is None else " with a branch"
    why = (
        f"{plan.drafter} at depth {plan.depth}{branch}: about {plan.expected:.2f} tokens for the "
        f"time of {plan.cost:.2f} plain steps"
    )
    return plan._replace(why=why)


_by_worth = operator.attrgetter("worth")


def _against(best: Plan) -> str:
    return (
        f"plain: {best.drafter} at depth {best.depth} should bring {best.expected:.2f} tokens for "
        f"the time of {best.cost:.2f} plain steps"
    )
