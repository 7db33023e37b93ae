"""How likely drafted tokens are accepted: by drafter, confidence and position."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import itemgetter, mul
from typing import Any

from .state import PARAMETERS

BUCKETS = 8
"""How many levels of confidence an offer can have."""

POSITIONS = 16
"""Positions in a chain that are distinguished; later ones count as the last."""

BY_RECENT = (0.40, 0.50, 0.56, 0.58, 0.60, 0.63, 0.68, 0.76)
"""By bucket: recent acceptance from none to full."""

BY_SCORE = (0.25, 0.42, 0.5, 0.58, 0.75, 0.8, 0.9, 0.96)
"""By bucket: a score less than 2, 2, 3, 4-5, 6-8, 9-15, 16-31, 32 and more."""

SHIPPED: Mapping[str, Sequence[float]] = {
    "draft+": (0.4,) * BUCKETS,  # a sibling, given that the token beside it was rejected
    "ngram": BY_SCORE,
    "suffix": BY_SCORE,
}
"""Chance that a token is accepted after those before it, until something has been learned; of
other drafters ``BY_RECENT``."""

ALL = -1
"""All positions of a bucket; or all buckets, whose cells count what the table had expected."""

Cell = tuple[str, int, int]


class AcceptanceEstimate:
    """Decayed Beta counts per (drafter, bucket, position).

    A cell holds the chance that the token at this position of a chain is accepted, given that all
    before it were. A cell with few observations leans on the bucket as a whole, and that on the
    shipped table, scaled by how this drafter compares with it in all buckets together.
    """

    def __init__(self) -> None:
        self._counts: dict[Cell, list[float]] = {}
        self._expected: dict[str, dict[tuple[int, int], list[float]]] = {}
        """Cached results of ``expected``, by drafter, until something new is learned."""

    def chance(self, drafter: str, bucket: int, position: int) -> float:
        """Chance that the token at ``position`` (from 0) is accepted after those before it."""
        cell = drafter, bucket, min(position, POSITIONS - 1)
        return self._mean(cell, self._whole(drafter, bucket))

    def expected(self, drafter: str, bucket: int, depth: int) -> Sequence[float]:
        """Expected tokens of a round, the target's own included, at depth 0 to ``depth``."""
        known = self._expected.setdefault(drafter, {})
        if (bucket, depth) not in known:
            whole = self._whole(drafter, bucket)
            places = [self._mean((drafter, bucket, at), whole) for at in range(POSITIONS)]
            chances = [*places, *[places[-1]] * (depth - POSITIONS)][:depth]
            known[bucket, depth] = list(accumulate(accumulate(chances, mul, initial=1.0)))
        return known[bucket, depth]

    def observe(self, drafter: str, bucket: int, drafted: int, accepted: int) -> None:
        """Learn from a round; tokens after the first rejected one were never judged."""
        self._expected.pop(drafter, None)
        for position in range(min(accepted + 1, drafted)):
            kept = position < accepted
            self._count((drafter, bucket, min(position, POSITIONS - 1)), kept)
            self._count((drafter, bucket, ALL), kept)
            self._count((drafter, ALL, ALL), kept, shipped(drafter, bucket))

    def as_dict(self) -> dict[str, Any]:
        return {
            f"{drafter} {bucket} {position}": [round(value, 3) for value in counts]
            for (drafter, bucket, position), counts in self._counts.items()
        }

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Take over what ``as_dict`` gave, as a prior; else a ValueError or TypeError."""
        counts: dict[Cell, list[float]] = {}
        for name, (accepted, judged) in stored.items():
            drafter, bucket, position = name.rsplit(" ", 2)
            most = judged if bucket != str(ALL) else 10 * judged
            if not (0 <= judged <= 1e12 and 0 <= accepted <= most):
                raise ValueError(f"{name}: {accepted} of {judged}")
            share = min(1.0, PARAMETERS.prior / judged) if judged else 0.0
            counts[drafter, int(bucket), int(position)] = [accepted * share, judged * share]
        self._counts = counts
        self._expected.clear()

    def _whole(self, drafter: str, bucket: int) -> float:
        """A bucket's chance at all positions."""
        start, own = shipped(drafter, bucket), PARAMETERS.prior / 4
        accepted, foretold = self._counts.get((drafter, ALL, ALL), (0.0, 0.0))
        start = min(start * (accepted + own) / (foretold + own), max(start, 0.9))
        return self._mean((drafter, bucket, ALL), start)

    def _mean(self, cell: Cell, wider: float) -> float:
        accepted, judged = self._counts.get(cell, (0.0, 0.0))
        return (accepted + PARAMETERS.prior * wider) / (judged + PARAMETERS.prior)

    def _count(self, cell: Cell, accepted: bool, weight: float = 1.0) -> None:
        counts = self._counts.setdefault(cell, [0.0, 0.0])
        keep = 1 - 1 / PARAMETERS.memory
        counts[0] = counts[0] * keep + accepted
        counts[1] = counts[1] * keep + weight


def shipped(drafter: str, bucket: int) -> float:
    """A token's chance in the shipped table."""
    return SHIPPED.get(drafter, BY_RECENT)[bucket]


class RecentAcceptance:
    """How often a text's tokens were guessed lately, by whichever drafter ran a model: a running
    average over judged tokens. How each drafter fares in a text that is as easy is learned apart.
    """

    def __init__(self) -> None:
        self._rounds = [(0, 0.6)]
        """Up to where tokens had been judged, and the average then; at first a usual one."""

    def share(self, length: int) -> float:
        """Share of tokens accepted recently, 0 to 1, when the text has so many tokens."""
        after = bisect_right(self._rounds, length, key=itemgetter(0))
        return self._rounds[max(after - 1, 0)][1]

    def observe(self, length: int, drafted: int, accepted: int) -> None:
        """Learn from a round behind so many tokens, unless those after them were judged before."""
        at, share = self._rounds[-1]
        if length < at:
            return
        judged = min(accepted + 1, drafted)
        for position in range(judged):
            share += PARAMETERS.recent * ((position < accepted) - share)
        self._rounds.append((length + judged, share))
        del self._rounds[1:-512]  # as far as a text is taken back

    def rollback(self, length: int) -> None:
        """Only the first ``length`` tokens of the text are still valid."""
        del self._rounds[max(bisect_right(self._rounds, length, key=itemgetter(0)), 1) :]


def bucket_of(share: float) -> int:
    """The bucket of an offer whose tokens are accepted with about this chance."""
    return min(int(BUCKETS * share), BUCKETS - 1)
