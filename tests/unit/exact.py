"""Exact sums over everything that can happen in a round, in float64, and the rules' references.

A ``Family`` is a pair of prefix-dependent models over a tiny vocabulary. A rule is a function of
the rows p [K + 1, V], q [K, V] and of the drafted chain; it lists its ``Outcome``s with their
chances. ``emitted`` sums over all drafts and outcomes and goes on with the target's own
conditionals, so an exact rule gives the target's joint distribution of K + 1 tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

from macspec.verification.match import first_mismatch

Array = np.ndarray[Any, np.dtype[Any]]
Chain = tuple[int, ...]


class Outcome(NamedTuple):
    """With this chance so many drafted tokens stand and one from ``following`` [V] comes after."""

    chance: float
    kept: int
    following: Array


Rule = Callable[[Array, Array, Chain], Iterator[Outcome]]

Policy = Callable[[Array, Chain], int]
"""From q [K, V] and the chain to how many of its tokens are verified."""


@dataclass(frozen=True)
class Family:
    """``p[i]`` and ``q[i]`` are [V] * i + [V]: the distribution after each prefix of i tokens."""

    p: list[Array]
    q: list[Array]

    @property
    def size(self) -> int:
        return len(self.p[0])

    @property
    def depth(self) -> int:
        return len(self.q)

    def rows(self, chain: Chain) -> tuple[Array, Array]:
        """p [K + 1, V] and q [K, V] along a chain of K tokens."""
        return (
            np.stack([table[chain[:i]] for i, table in enumerate(self.p)]),
            np.stack([table[chain[:i]] for i, table in enumerate(self.q)]),
        )

    def tails(self) -> list[Array]:
        """For each i the chance of all tokens after the i-th, [V] * (K + 1)."""
        tails = [np.ones([self.size] * (self.depth + 1))]
        for table in reversed(self.p[1:]):
            tail = tails[0] * table.reshape(table.shape + (1,) * (tails[0].ndim - table.ndim))
            tails.insert(0, tail)
        return tails

    def joint(self) -> Array:
        """The target's distribution of K + 1 tokens, [V] * (K + 1)."""
        first = self.p[0].reshape((-1,) + (1,) * self.depth)
        return first * self.tails()[0]


class Emission:
    """What a rule emits, and how many tokens a pass."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.joint = np.zeros([family.size] * (family.depth + 1))
        self.tokens_per_pass = 0.0
        self._tails = family.tails()

    def add(self, chance: float, head: Chain, following: Array) -> None:
        """``head`` and one token of ``following`` are emitted, the target goes on by itself."""
        tail = self._tails[len(head)][head]
        self.joint[head] += chance * following.reshape((-1,) + (1,) * (tail.ndim - 1)) * tail
        self.tokens_per_pass += chance * (len(head) + 1)

    @property
    def error(self) -> float:
        """The largest difference from the target's joint distribution."""
        return float(np.max(np.abs(self.joint - self.family.joint())))


def emitted(family: Family, rule: Rule) -> Emission:
    """The sum over all chains that the draft can sample and over all outcomes."""
    emission = Emission(family)
    for chain in product(range(family.size), repeat=family.depth):
        p, q = family.rows(chain)
        drafted = math.prod(q[i, x] for i, x in enumerate(chain))
        if drafted > 0:
            for outcome in rule(p, q, chain):
                chance = drafted * outcome.chance
                emission.add(chance, chain[: outcome.kept], outcome.following)
    return emission


def normalised(weights: Array, otherwise: Array) -> Array:
    """A distribution from weights [V]; ``otherwise`` where they are all zero."""
    total = weights.sum()
    return weights / total if total > 0 else otherwise


def token_rejection(p: Array, q: Array, chain: Chain) -> Iterator[Outcome]:
    """Leviathan et al. 2023 (arXiv:2211.17192), Chen et al. 2023 (arXiv:2302.01318)."""
    reached = 1.0
    for i, x in enumerate(chain):
        keep = min(1.0, p[i, x] / q[i, x])
        yield Outcome(reached * (1 - keep), i, normalised(np.maximum(p[i] - q[i], 0), p[i]))
        reached *= keep
    yield Outcome(reached, len(chain), p[-1])


def judged(judge: Callable[..., tuple[Array, Array]]) -> Rule:
    """Block verification with the given ``judge``: t is the largest i with u_i <= h_i."""

    def rule(p: Array, q: Array, chain: Chain) -> Iterator[Outcome]:
        with np.errstate(divide="ignore"):
            h, weights = judge(p, q, np.array(chain), xp=np)
        later = 1.0
        for kept in range(len(chain), 0, -1):
            yield Outcome(later * h[kept - 1], kept, normalised(weights[kept], p[kept]))
            later *= 1 - h[kept - 1]
        yield Outcome(later, 0, normalised(weights[0], p[0]))

    return rule


@cache
def verdict(drawn: Chain, drafted: Chain) -> tuple[int, int]:
    """The product's verdict: how many stand, and the token after them."""
    verdict = first_mismatch(mx.array(drawn, mx.uint32), mx.array(drafted, mx.uint32))
    return int(verdict.accepted.item()), int(verdict.token.item())


def match(p: Array, q: Array, chain: Chain) -> Iterator[Outcome]:
    """The product's match, over all draws of the target's rows."""
    for drawn in product(range(p.shape[1]), repeat=len(p)):
        kept, token = verdict(drawn, chain)
        chance = np.prod(p[np.arange(len(p)), drawn])
        yield Outcome(chance, kept, np.eye(p.shape[1])[token])


def draw(distribution: Array, omega: int, points: int) -> int:
    """Inverse CDF of a distribution in multiples of 1 / points."""
    return int(np.searchsorted(np.cumsum(np.rint(distribution * points)), omega, side="right"))


def cut(policy: Policy, rule: Rule) -> Rule:
    """The rule on as much of the chain as the policy wants verified."""

    def shorter(p: Array, q: Array, chain: Chain) -> Iterator[Outcome]:
        depth = policy(q, chain)
        if depth == 0:
            return iter([Outcome(1.0, 0, p[0])])
        return rule(p[: depth + 1], q[:depth], chain[:depth])

    return shorter


def unsure(q: Array, chain: Chain) -> int:
    """How many tokens come before the first that its own draft finds unlikely."""
    likely = [q[i, x] >= 0.4 for i, x in enumerate(chain)]
    return likely.index(False) if False in likely else len(chain)


def block_reference(p: Array, q: Array, chain: Sequence[int]) -> tuple[Array, Array]:
    """h [K] and weights [K + 1, V] of Sun et al. 2024 (arXiv:2403.10444), step by step."""
    depth, b = len(chain), 1.0
    h, weights = np.empty(depth), np.empty_like(p)
    for i, x in enumerate(chain):
        weights[i] = np.maximum(b * p[i] - q[i], 0)
        b = min(1.0, b * p[i, x] / q[i, x])
        r = np.maximum(b * p[i + 1] - q[i + 1], 0).sum() if i + 1 < depth else math.nan
        h[i] = b if i + 1 == depth else 1.0 if b == 1 else r / (r + (1 - b))
    weights[depth] = p[depth]
    return h, weights


def excess(counts: Any, expected: Any, freedom: int | None = None) -> float:
    """Pearson's chi-square of counts against expected ones, as standard deviations of a normal.

    Wilson and Hilferty's cube root. ``freedom`` is the number of possible cells less one, unless
    more sums are fixed. Cells that cannot occur must be empty.
    """
    counts, expected = np.ravel(counts).astype(float), np.ravel(expected).astype(float)
    possible = expected > 0
    assert not counts[~possible].any(), "a token without probability was drawn"
    counts, expected = counts[possible], expected[possible]
    assert expected.min() >= 5, "too few draws for this test"
    k = len(expected) - 1 if freedom is None else freedom
    statistic = float(np.sum((counts - expected) ** 2 / expected))
    return ((statistic / k) ** (1 / 3) - (1 - 2 / (9 * k))) / math.sqrt(2 / (9 * k))
