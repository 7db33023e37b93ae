"""The choice before each round: which drafter, how deep, or plain."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..choices import MAX_DEPTH, SWITCHED_OFF
from ..power.attribution import RoundWatts
from .acceptance import AcceptanceEstimate
from .cost import BRANCHED, CostCurve, candidates
from .state import PARAMETERS, Parameters


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
    """What a round drafts with and how deep, 0 for plain; some of it is the offer's."""

    drafter: str | None
    depth: int
    length: int = 0
    """Committed tokens at the time of the choice."""
    bucket: int = 0
    unread: int = 0
    branch: int | None = None
    """Which drafted token gets a sibling, 0 the first; None: a chain."""
    expected: float = 1.0
    """Tokens that the round should yield."""
    cost: float = 1.0
    """Plain steps that it should take."""
    most: float = 1.0
    """Plain steps that it may take as far as is known."""
    amortised: float = 0.0
    """The part of the cost from which later rounds gain: reading the text into a draft model."""
    branches: bool = False
    probe: bool = False
    """Whether it is there to learn, not to gain."""
    why: str = ""
    """The reason, in one sentence."""

    @property
    def kind(self) -> str | None:
        """The drafter, marked where its chain has a branch."""
        return self.drafter if self.branch is None else f"{self.drafter}{BRANCHED}"

    @property
    def worth(self) -> float:
        """Tokens for the time of a plain step: expected tokens over expected seconds."""
        return self.expected / (self.cost - self.amortised)


WORTH = operator.attrgetter("worth")

PLAIN = Plan(None, 0, why="not drafting")

OFF = PLAIN._replace(why=SWITCHED_OFF)

SETTLED = 64
"""Tokens of a reply from which on it loses no more than promised; also its assumed length."""

NEARLY = 0.9
"""Share of the best speed that fewer joules must keep, and of plain's that may be worth a try."""

REST = 8
"""Most plain rounds for which a choice holds, as each choice takes time of the host."""

TIMING = PLAIN._replace(probe=True, why="not drafting: timing a plain step")


class Controller:
    """Maximises expected tokens over expected seconds, one round at a time.

    - **Choice**: the greatest worth, if it promises ``hysteresis`` times plain decoding's. Amid
      plain rounds, leaving their pipeline is part of a round's cost.
    - **Probes**: a model not used, when ``probing`` of the tokens since covers what it should lose.
    - **Honesty**: an account of tokens gained over plain decoding. It begins with ``allowance`` of
      ``SETTLED`` tokens and gets as much of later ones; a round is charged ``precision`` times its
      most. None may lose more than is left, nor more than ``stake`` of it unless the shallowest
      loses as much. So whatever is accepted, a reply loses no more than that.

    A plan depends only on what is known before the round: costs, acceptance so far, and what the
    drafters offer. So every acceptance rule stays exact under it.
    """

    def __init__(
        self, curve: CostCurve, acceptance: AcceptanceEstimate, parameters: Parameters = PARAMETERS
    ) -> None:
        self.curve = curve
        self.acceptance = acceptance
        self.last = PLAIN
        self.objective = "speed"
        self.watts = RoundWatts()
        self._set = parameters
        self._account = parameters.allowance * SETTLED  # plain steps that may be lost
        self._tokens = 0
        self._tried: dict[str | None, int] = {}  # tokens when each was last used
        self._model: str | None = None  # of several drafters that run one, that of this reply
        self._saved = 0.0  # plain steps that the next probe may lose
        self.resting = 0
        """For how many more plain rounds the newest choice holds: a quarter of those in a row."""
        self._idle = 0  # plain rounds in a row
        self._first = True  # whether no round came just before

    def choose(
        self, offers: Sequence[Offer], length: int, limit: int, depth: int | None = None
    ) -> Plan:
        """The plan of the next round. Asking twice gives the same answer.

        Args:
            length: committed tokens.
            limit: most drafted tokens that the reply can use.
            depth: fixed depth; None: it is chosen too.
        """
        models = {it.drafter for it in offers if self.curve.step(it.drafter)}
        used = {self._model} & models or models  # of several, one a reply
        offers = [it for it in offers if it.drafter not in models - used]
        every = [self._plans(it, length, limit, depth) for it in offers if min(it.room, limit) > 0]
        plans = [self._best(it) for it in every]
        best = max(plans, key=WORTH, default=None)
        if best is None:
            chosen = PLAIN._replace(why="not drafting: no match in the text so far")
        elif depth is not None:
            chosen = _explained(best)
        else:
            pays = best.worth >= self._set.hysteresis and best.most - 1 <= self._account
            chosen = _explained(best, pays)
            if self.objective == "energy" and self.watts:
                chosen = self._thriftiest(itertools.chain(*every), chosen)
            if not self._first:  # the time of a first round tells nothing
                chosen = self._probe(plans, chosen, length) or chosen
        self.resting = 0 if chosen.depth or chosen.probe or depth else min(self._idle // 4, REST)
        self.last = chosen._replace(length=length)
        return self.last

    def reader(
        self, offers: Sequence[Offer], length: int, limit: int, depth: int | None = None
    ) -> str | None:
        """Of the drafters that run a model, choose the one of this reply, whose rounds are worth
        most; returned if these may pay in a reply of ``SETTLED`` tokens."""
        every = [self._plans(it, length, limit, depth) for it in offers if min(it.room, limit) > 0]
        best = max(map(self._best, every), key=WORTH, default=PLAIN)
        self._model, self.resting, self._first, self.curve.left = best.drafter, 0, True, []
        return best.drafter if depth is not None or best.worth >= NEARLY else None

    def observe_cost(
        self,
        plan: Plan,
        drafted: int,
        committed: int,
        seconds: float | None,
        overlaps: int = 0,
        replayed: bool = False,
        waited: float = 0.0,
    ) -> None:
        """Learn what a round cost in which ``drafted`` tokens of the chain were verified.
        ``seconds``: None where that says nothing; those after it as in ``CostCurve.observe``."""
        kind = plan.kind if drafted else None
        if seconds is not None and (plan.unread <= 4 or not drafted):
            self.curve.observe(kind, drafted, plan.length, seconds, overlaps, replayed, waited)
        self._tokens, self._first = self._tokens + committed, False
        self._idle = 0 if kind or plan.probe else self._idle + 1
        self.resting = max(self.resting - 1, 0)
        if self._tokens > SETTLED:
            self._account += self._set.allowance * committed
        if kind is not None:
            self._account += committed - plan.most * self._set.precision
        self._account = min(self._account, self._set.credit)
        self._saved = 0.0 if plan.probe else self._saved + self._set.probing * committed
        self._tried[plan.drafter] = self._tokens

    def study(self, drafter: str, rounds: Iterable[tuple[int, int, int]], length: int) -> None:
        """Learn, when idle, how a drafter would have fared in rounds (bucket, drafted and accepted
        tokens) without it. What it would have gained goes into the account, up to ``credit``."""
        gained, self._first = 0.0, True
        for bucket, drafted, accepted in rounds:
            plan = max(self._plans(Offer(drafter, drafted, bucket), length, drafted), key=WORTH)
            gained += min(accepted, plan.depth) + 1 - plan.cost * self._set.precision
            self.acceptance.observe(drafter, bucket, drafted, accepted)
        self._account = min(self._account + max(gained, 0.0), self._set.credit)

    @property
    def pipelines(self) -> bool:
        """Whether a plain round should be launched before the token that it follows is known."""
        return not self.last.probe

    def _plans(self, offer: Offer, length: int, limit: int, depth: int | None = None) -> list[Plan]:
        """An offer used at each depth that comes into question, the shallowest first."""
        name, room = offer.drafter, min(offer.room, limit)
        tokens = self.acceptance.expected(name, offer.bucket, MAX_DEPTH)
        reading, left = self.curve.catching_up(name, offer.unread), min(SETTLED, limit + 1)
        leaving = self.curve.leaving(length) if self._idle and not self._first else 0.0
        once = reading + leaving if self.curve.step(name) else 0.0  # rounds of a model go on
        plans, best = [], 0.0
        for at in candidates(room) if depth is None else (min(depth, room),):
            # Unless the whole chain is accepted, a replay follows.
            more = reading + leaving + self.curve.replay * (1 - tokens[at] + tokens[at - 1])
            plan = Plan(
                *(name, at, length, offer.bucket, offer.unread, None, tokens[at]),
                cost=self.curve.round(name, at, length) + more,
                most=self.curve.most(name, at, length) + more,
                amortised=once * max(1 - tokens[at] / left, 0.0),
                branches=offer.branches,
            )
            plans.append(plan)
            best = max(best, plan.worth)
            if tokens[room] < NEARLY * best * (plan.cost - plan.amortised):
                break  # deeper rounds cost more
        return plans

    def _best(self, plans: Sequence[Plan]) -> Plan:
        """The best of an offer's plans that the account covers, else the shallowest."""
        most = max(self._set.stake * self._account, 1.25 * (plans[0].most - 1))
        known = (it for it in plans if it.most - 1 <= min(self._account, most))
        best = max(known, key=WORTH, default=plans[0])
        return self._branched(best) if best.branches and best.depth < MAX_DEPTH else best

    def _thriftiest(self, plans: Iterable[Plan], fastest: Plan) -> Plan:
        """Of plans that the account covers, nearly as fast, that of fewest joules per token."""
        known = [_explained(it) for it in plans if it.most - 1 <= self._account]
        plain = PLAIN._replace(why="not drafting: plain decoding")
        near = (it for it in [plain, fastest, *known] if it.worth >= NEARLY * fastest.worth)
        best = min(near, key=self._joules)
        return best._replace(why=f"{best.why}, {self._joules(best):.2f}× its joules per token")

    def _joules(self, plan: Plan) -> float:
        """Joules per token, over those of plain decoding."""
        return self.watts.of(plan.drafter, plan.depth) / self.watts.of(None, 0) / plan.worth

    def _branched(self, plan: Plan) -> Plan:
        """The same chain with a sibling where it is most likely rejected, if that is better."""
        tokens = self.acceptance.expected(plan.drafter or "", plan.bucket, MAX_DEPTH)
        alive = [1.0, *(b - a for a, b in itertools.pairwise(tokens))]
        rejected = [a - b for a, b in itertools.pairwise(alive)]
        at = max(range(plan.depth), key=rejected.__getitem__)
        it = plan._replace(branch=at)
        kind, chain = it.kind or "", plan.kind or ""
        more = self.curve.round(kind, it.depth, it.length)
        more -= self.curve.round(chain, it.depth, it.length)
        gain = rejected[at] * self.acceptance.chance(kind, it.bucket, 0)
        it = it._replace(expected=it.expected + gain, cost=it.cost + more, most=it.most + more)
        return max(plan, it, key=WORTH)

    def _probe(self, plans: Sequence[Plan], chosen: Plan, length: int) -> Plan | None:
        """What should be tried now instead; lookups are scored and need no try."""
        if chosen.depth and self.curve.asks_for_plain(length):
            return TIMING
        tries = (it for it in plans if self.curve.step(it.drafter or ""))
        plan = min(tries, key=lambda it: self._tried.get(it.drafter, -1), default=chosen)
        loss = plan.cost * max(chosen.worth, self._set.hysteresis) - plan.expected
        if plan.drafter == chosen.drafter or loss > self._saved or plan.most - 1 > self._account:
            return None
        return plan._replace(probe=True, why=f"{plan.drafter}: probing whether drafting pays")


def _explained(plan: Plan, pays: bool = True) -> Plan:
    branch = " with a branch" if pays and plan.branch is not None else ""
    what, speed = f"{plan.drafter} at depth {plan.depth}{branch}", f"{plan.worth:.2f}× plain"
    if pays:
        return plan._replace(why=f"{what}: {speed} expected")
    return PLAIN._replace(why=f"not drafting: {what} would run at {speed}")
