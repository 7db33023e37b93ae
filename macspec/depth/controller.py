"""The choice before each round: which drafter, how deep, or plain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .curve import CostCurve, candidates
from .plan import PLAIN, Offer, Plan
from .survival import Survival

MARGIN = 1.03
"""Speculation must promise this much over plain: estimates are noisy, and plain is never wrong."""

FIRST_PROBE = 8
"""Plain rounds before a parked drafter is tried again; each failure doubles them."""

LAST_PROBE = 512

PROBE_DEPTH = 2
"""A probe is no deeper: it asks whether drafting pays at all."""

GAP = 0.05
"""Share of a plain round that the device waits for the host, until it has been measured."""

FADE = 0.05
"""Weight of the newest round in a running average."""

CHECK = 96
"""Rounds without a plain one after which one is taken, to know what plain costs now."""


@dataclass(slots=True)
class Parking:
    """How many plain rounds a drafter has waited since it stopped paying, and how long it will."""

    waited: int = 0
    patience: int = FIRST_PROBE


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
        self._parked: dict[str, Parking] = {}
        self._since_plain = 0
        self._gap = GAP
        self._missed = 0.0

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
        plans = [
            self._best(offer, length, min(offer.room, limit), depth)
            for offer in offers
            if min(offer.room, limit) > 0
        ]
        if not plans:
            self.last = replace(PLAIN, length=length, why="plain: there is nothing to draft with")
            return self.last
        best = max(plans, key=_worth)
        if depth is not None:
            self.last = best
        elif _worth(best) < MARGIN:
            self.last = self._probe(offers, length, limit) or replace(
                PLAIN, length=length, why=_against(best)
            )
        elif self._since_plain >= CHECK:
            self.last = replace(
                PLAIN, length=length, why="plain: a look at what a plain step costs"
            )
        else:
            self.last = best
        return self.last

    def clock(self, plan: Plan, drafted: int, seconds: float, idle: float) -> None:
        """Learn what a round cost.

        Args:
            drafted: tokens that were verified; fewer than ``plan.depth`` where the drafter had
                no more.
            seconds: from the landing before to its own.
            idle: of those, how long the device had nothing to do.
        """
        self.curve.observe(
            plan.drafter if drafted else None, drafted, plan.length, seconds, plan.behind
        )
        if drafted:
            self._since_plain += 1
            if plan.drafter in self._parked:
                parking = self._parked[plan.drafter]
                parking.waited = 0
                won = _worth(plan) >= MARGIN
                parking.patience = FIRST_PROBE if won else min(2 * parking.patience, LAST_PROBE)
            return
        self._since_plain = 0
        for parking in self._parked.values():
            parking.waited += 1
        if idle > 0 and self.curve.unit:
            self._gap += FADE * (min(idle / self.curve.unit, 1.0) - self._gap)
        best = self.last
        missed = 1 - best.cost / best.expected if best.depth > 0 else 0.0
        self._missed += FADE * (max(missed, 0.0) - self._missed)

    def learn(self, drafter: str, bucket: int, drafted: int, accepted: int) -> None:
        """Learn what stood, or would have, from a round or from committed text alone."""
        self.survival.observe(drafter, bucket, drafted, accepted)

    @property
    def ahead(self) -> bool:
        """Whether a plain round is best launched before the token that it follows is known.

        It saves the device's gap between two rounds, and loses what a match that begins with that
        token would have saved.
        """
        return self._missed < self._gap

    @property
    def why(self) -> str:
        """Why the newest round does what it does, in one sentence."""
        return self.last.why

    def _best(self, offer: Offer, length: int, room: int, depth: int | None) -> Plan:
        depths = candidates(room) if depth is None else [min(depth, room)]
        tokens = self.survival.expected(offer.drafter, offer.bucket, max(depths))
        plans = [
            Plan(
                drafter=offer.drafter,
                depth=d,
                length=length,
                bucket=offer.bucket,
                behind=offer.behind,
                expected=tokens[d],
                cost=self.curve.round(offer.drafter, d, length, offer.behind),
            )
            for d in depths
        ]
        best = max(plans, key=_worth)
        why = (
            f"{best.drafter} at depth {best.depth}: about {best.expected:.2f} tokens for the time "
            f"of {best.cost:.2f} plain steps"
        )
        return replace(best, why=why)

    def _probe(self, offers: Sequence[Offer], length: int, limit: int) -> Plan | None:
        """A cheap look at whether a model's drafts pay by now.

        Look-ups need none: what they would have proposed is compared with every committed token.
        """
        for offer in offers:
            room = min(offer.room, limit)
            if room < 1 or self.curve.step(offer.drafter) == 0:
                continue
            parking = self._parked.setdefault(offer.drafter, Parking())
            if parking.waited >= parking.patience:
                plan = self._best(offer, length, room, PROBE_DEPTH)
                return replace(plan, why=f"{plan.drafter}: a look at whether drafting pays by now")
        return None


def _worth(plan: Plan) -> float:
    return plan.expected / plan.cost


def _against(best: Plan) -> str:
    return (
        f"plain: {best.drafter} at depth {best.depth} should bring {best.expected:.2f} tokens for "
        f"the time of {best.cost:.2f} plain steps"
    )
