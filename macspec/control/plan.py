"""What a drafter offers before a round, and what the round then does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

BUCKETS = 8
"""How many steps of certainty an offer can have."""

BRANCHED = "+"
"""Behind a drafter's name: its chain with one sibling, which costs and survives differently."""


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


def bucket_of(share: float) -> int:
    """The bucket of an offer whose tokens stand with about this chance."""
    return min(int(BUCKETS * share), BUCKETS - 1)


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
