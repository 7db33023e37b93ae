"""The choice before each round: which drafter, how deep, or plain."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from .curve import CostCurve, candidates
from .plan import BRANCHED, MAX_DEPTH, PLAIN, Offer, Plan
from .survival import Survival

MARGIN = 1.02
"""Speculation must promise this much over plain: estimates are noisy, and plain is never wrong."""

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

REFUND = 0.4
"""Most that a look which brought more than it took gives back."""

DOUBTS = 2.0
"""Standard errors by which drafting may be better than it looks."""

GAP = 0.05
"""Share of a plain round that the device waits for the host, until it has been measured."""

REPLY = 64.0
"""Tokens of a reply, until some have ended."""

SHARE = 0.2
"""Weight of the newest reply in their average length."""

FADE = 0.05
"""Weight of the newest round in a running average."""

CHECK = 96
"""Rounds without a plain one after which one is taken, to know what plain costs now."""


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
        self._gap = GAP
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
        plans = [plan for offer in useful for plan in self._plans(offer, length, limit, depth)]
        if not plans:
            self.last = PLAIN._replace(length=length, why="plain: there is nothing to draft with")
            return self.last
        best = max(plans, key=_by_worth)
        if depth is not None:
            self.last = _explained(best)
        elif best.expected < MARGIN * (best.cost - best.lasting + self._leaving):
            self.last = self._look(plans) or PLAIN._replace(length=length, why=_against(best))
        elif self.curve.unit is None or self._since_plain >= CHECK:
            self.last = PLAIN._replace(
                length=length, why="plain: a look at what a plain step costs"
            )
        else:
            self.last = _explained(best)
        return self.last

    def clock(
        self,
        plan: Plan,
        drafted: int,
        brought: int,
        seconds: float,
        idle: float,
        alone: bool = True,
    ) -> None:
        """Learn what a round cost.

        Args:
            drafted: tokens of the chain that were verified; fewer than ``plan.depth`` where the
                drafter had no more.
            brought: tokens that were committed.
            seconds: from the landing before to its own.
            idle: of those, how long the device had nothing to do.
            alone: it was neither launched ahead nor another behind it.
        """
        kind = plan.kind if drafted else None
        # Plain rounds can be launched ahead of each other, and then the device need not wait.
        busy = seconds if drafted else seconds - idle
        self.curve.observe(kind, drafted, plan.length, busy, plan.behind, alone)
        if drafted:
            self._since_plain += 1
            if plan.look:
                took = seconds / (self.curve.unit or seconds)
                won = brought - min(took, HICCUP * plan.cost)
                self._purse += min(won, REFUND)
                self._rarely = RARELY if won > 0 else max(self._rarely / 2, RAREST)
            return
        self._since_plain = 0
        self._purse = min(self._purse + self._looks, SAVED)
        if idle > 0 and self.curve.unit:
            self._gap += FADE * (min(idle / self.curve.unit, 1.0) - self._gap)
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
        self._reply += SHARE * (tokens - self._reply)

    @property
    def ahead(self) -> bool:
        """Whether a plain round is best launched before the token that it follows is known.

        It saves the device's gap between two rounds, and loses what a match that begins with that
        token would have saved.
        """
        return self.curve.unit is not None and self._missed < self._gap

    @property
    def _leaving(self) -> float:
        """What it costs to break a run of plain rounds that are launched ahead of each other.

        The device waits before this round, which its cost holds, and again after it.
        """
        return self._gap if self._since_plain == 0 and self.ahead else 0.0

    @property
    def why(self) -> str:
        """Why the newest round does what it does, in one sentence."""
        return self.last.why

    def _plans(self, offer: Offer, length: int, limit: int, depth: int | None) -> list[Plan]:
        """What the offer could be used for."""
        name, bucket, behind = offer.drafter, offer.bucket, offer.behind
        room = min(offer.room, limit)
        depths = candidates(room) if depth is None else [min(depth, room)]
        tokens = self.survival.expected(name, bucket, depths[-1])
        reading = self.curve.catching_up(name, behind)
        left = min(self._reply, limit + 1)
        plans = [
            Plan(
                drafter=name,
                depth=d,
                length=length,
                bucket=bucket,
                behind=behind,
                expected=tokens[d],
                cost=self.curve.round(name, d, length) + reading,
                lasting=reading * max(1 - tokens[d] / left, 0.0),
            )
            for d in depths
        ]
        if offer.branches:
            plans += [self._branched(plan, tokens) for plan in plans if plan.depth < MAX_DEPTH]
        return plans

    def _branched(self, plan: Plan, tokens: Sequence[float]) -> Plan:
        """The same chain with a sibling where it most likely parts from the text."""
        falls = [2 * b - a - c for a, b, c in zip([0.0, *tokens], tokens, tokens[1:], strict=False)]
        at = max(range(plan.depth), key=falls.__getitem__)
        kind = f"{plan.drafter}{BRANCHED}"
        return plan._replace(
            branch=at,
            expected=plan.expected + falls[at] * self.survival.chance(kind, plan.bucket, 0),
            cost=plan.cost
            + self.curve.round(kind, plan.depth, plan.length)
            - self.curve.round(plan.drafter, plan.depth, plan.length),
        )

    def _look(self, plans: Sequence[Plan]) -> Plan | None:
        """A round of a model's drafts, if what it should lose has been saved up.

        Look-ups need no look: what they would have proposed is compared with every token.
        """
        models = [plan for plan in plans if self.curve.step(plan.drafter or "") > 0]
        if not models:
            return None
        best = max(models, key=self._hoped_worth)
        pays = self._hoped_worth(best) >= 1
        self._looks = LOOKS if pays else self._rarely
        if not pays:
            best = max(models, key=_by_worth)
        if best.loss > self._purse:
            return None
        why = f"{best.drafter}: a look at whether drafting pays by now"
        return best._replace(look=True, why=why)

    def _hoped_worth(self, plan: Plan) -> float:
        """What it would be worth if its drafter were better than it looks."""
        hoped = self.survival.expected(plan.drafter or "", plan.bucket, MAX_DEPTH, DOUBTS)
        return hoped[plan.depth] / (plan.cost - plan.lasting)


def _explained(plan: Plan) -> Plan:
    branch = "" if plan.branch is None else " with a branch"
    why = (
        f"{plan.drafter} at depth {plan.depth}{branch}: about {plan.expected:.2f} tokens for the "
        f"time of {plan.cost:.2f} plain steps"
    )
    return plan._replace(why=why)


_by_worth = attrgetter("worth")


def _against(best: Plan) -> str:
    return (
        f"plain: {best.drafter} at depth {best.depth} should bring {best.expected:.2f} tokens for "
        f"the time of {best.cost:.2f} plain steps"
    )
