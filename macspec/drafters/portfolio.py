"""All drafters of a session, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..control import Offer, Plan
from .chain import ChainDrafter
from .drafter import Context, Drafter, Proposal
from .lookup import Lookup

SHADOW = 8
"""Tokens of a look-up that was not used which are compared with what committed."""


class Portfolio:
    """The drafters of a session: what they offer, what they propose, what they would have proposed.

    A look-up costs no model time, so those that a round did not use are scored as well.
    """

    def __init__(self, drafters: Mapping[str, Drafter]) -> None:
        self.drafters = dict(drafters)

    def __contains__(self, name: str) -> bool:
        return name in self.drafters

    def models(self, method: str) -> list[ChainDrafter]:
        """The drafters that run a model, of those that the method may use."""
        return [it for it in self._of(method) if isinstance(it, ChainDrafter)]

    def offers(self, tokens: Sequence[int], method: str) -> list[Offer]:
        """What the drafters of a method could do after ``tokens``; ``auto`` asks all of them."""
        return [drafter.offer(tokens) for drafter in self._of(method)]

    def propose(self, plan: Plan, context: Context) -> Proposal | None:
        """The proposal of a round; None where it is plain, or the drafter has none after all."""
        if plan.drafter is None:
            return None
        drafter = self.drafters[plan.drafter]
        if plan.branch is not None and isinstance(drafter, ChainDrafter):
            return drafter.propose_tree(context, plan.depth, plan.branch)
        return drafter.propose(context, plan.depth)

    def observe(self, plan: Plan, committed: Sequence[int], drafted: int, accepted: int) -> None:
        if plan.drafter is not None:
            self.drafters[plan.drafter].observe(committed, drafted, accepted)

    def shadows(
        self, plan: Plan, tokens: Sequence[int], committed: Sequence[int]
    ) -> Iterator[tuple[Offer, int, int]]:
        """For each look-up that a round did not use: its offer, drafted and accepted tokens.

        Args:
            tokens: committed before the round; ``committed``: by it.
        """
        for name, drafter in self.drafters.items():
            if name == plan.drafter or not isinstance(drafter, Lookup):
                continue
            offer = drafter.offer(tokens)
            guess, _ = drafter.continuation(tokens, min(SHADOW, offer.room, len(committed)))
            agreed = 0
            while agreed < len(guess) and guess[agreed] == committed[agreed]:
                agreed += 1
            if guess:
                yield offer, min(agreed + 1, len(guess)), agreed

    def expect(self, text: Sequence[int]) -> None:
        """Have look-ups search this text too: what the reply will probably repeat."""
        for drafter in self.drafters.values():
            if isinstance(drafter, Lookup):
                drafter.expect(text)

    def rollback(self, length: int) -> None:
        """Bring every drafter back to the first ``length`` tokens."""
        for drafter in self.drafters.values():
            drafter.rollback(length)

    def _of(self, method: str) -> list[Drafter]:
        names = self.drafters if method == "auto" else (method,)
        return [self.drafters[name] for name in names if name in self.drafters]
