"""Chances measured at the kernels themselves, and summed over everything that can happen.

Noise is a hash of the position, so among very many positions there are some that put a uniform
just below and just above any bound, and some where two tokens' scores nearly tie. What the kernels
decide there pins their chances between two close values, whose middle is taken. The joint
distribution of a round, added up from these, is the target's.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import mlx.core as mx
import numpy as np
import pytest
from harness import Mutant, installed
from harness.mutants import mutate
from passes import Array, distribution, verdict

from macspec.metal import accept
from macspec.noise import ACCEPT, RESIDUAL, TARGET, Noise, bits, to_gumbel, to_uniform
from macspec.sampling import Sampling

# After ``passes``, which says where they are.
from exact import Chain, Outcome, block_reference, emitted, normalised  # isort: skip
from families import KINDS, family  # isort: skip

POSITIONS = 2**18
SEED = 987_654_321_987
CLOSE = 1e-5
"""No position is used whose decision rounding could turn."""
ERROR = 1e-3
"""In the joint distribution, from the width of the brackets that chances are pinned between."""
RARE = 1e-2
"""What comes up less often is not measured, but taken as it should be."""


def mixed(x: Array) -> Array:
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    return x ^ (x >> 16)


@cache
def hashes(stream: int, width: int) -> mx.array:
    """Hash bits [POSITIONS + 8, width] at draw 0, a row for each position."""
    keys = []
    for step in (0x9E3779B9, 0x85EBCA6B):
        key = np.zeros(POSITIONS + 8, np.uint32)
        positions = np.arange(len(key), dtype=np.uint32)
        for word in (SEED & 0xFFFFFFFF, SEED >> 32, stream, positions, 0):
            key = mixed((key ^ np.asarray(word, np.uint32)) + np.uint32(step))
        keys.append(key)
    return bits(mx.array(np.stack(keys, axis=1)), mx.arange(width, dtype=mx.uint32))


def uniforms(depth: int) -> Array:
    """[POSITIONS, depth]: the uniforms of a pass at each position."""
    column = np.array(to_uniform(hashes(ACCEPT, 1)))[:, 0].astype(np.float64)
    return np.stack([column[i : POSITIONS + i] for i in range(depth)], axis=1)


def gumbels(stream: int, width: int) -> Array:
    """[POSITIONS, width]: the noise of a pass's first row at each position."""
    return np.array(to_gumbel(hashes(stream, width)))[:POSITIONS].astype(np.float64)


class Measured:
    """A pass over one chain whose noise is chosen by its position."""

    def __init__(
        self, sampling: Sampling, logits: mx.array, drafted: Chain, log_q: mx.array | None
    ) -> None:
        self.sampling, self.logits, self.log_q = sampling, logits, log_q
        self.drafted = mx.array(drafted, mx.uint32)

    def at(self, position: int) -> tuple[int, int]:
        """The kernels' verdict with the noise of that position."""
        noise = Noise(SEED, 0, int(position), *self.logits.shape)
        return verdict(accept.accept(self.sampling, self.logits, self.drafted, self.log_q, noise))

    def chance(self, kept: int, h: float, among: Array, u: Array) -> float:
        """The bound below which a uniform keeps so many tokens.

        Args:
            h: where it should be.
            among: positions where no larger number of tokens is kept.
            u: of these positions.
        """
        below, above = 0.0, 1.0
        if (u < h - CLOSE).any():
            position = np.argmax(np.where(u < h - CLOSE, u, -1))
            below = u[position]
            assert self.at(among[position])[0] == kept
        if (u > h + CLOSE).any():
            position = np.argmin(np.where(u > h + CLOSE, u, 2))
            above = u[position]
            assert self.at(among[position])[0] < kept
        return float(below + above) / 2

    def weights(self, kept: int, expected: Array, among: Array, noise: Array) -> Array:
        """The distribution [V] of the token after so many kept ones.

        Args:
            expected: what it should be.
            among: positions where so many are kept.
            noise: [n, V] of these positions.
        """
        with np.errstate(divide="ignore"):
            log_w = np.log(expected)
        first = int(np.argmax(log_w))
        found = np.zeros_like(log_w)
        found[first] = 1
        for other in range(len(found)):
            if expected[other] == 0:
                # Not even its best noise brings it up.
                lead = noise[:, other] - np.delete(noise, other, axis=1).max(axis=1)
                assert self.at(among[np.argmax(lead)])[0] == kept
                assert self.at(among[np.argmax(lead)])[1] != other
            elif expected[other] < RARE:
                found[other] = expected[other] / expected[first]
            elif other != first:
                odds = self.odds(first, other, log_w, kept, among, noise)
                found[other] = np.exp(odds)
        return found / found.sum()

    def odds(
        self, first: int, other: int, log_w: Array, kept: int, among: Array, noise: Array
    ) -> float:
        """log(weight of other / weight of first): the difference of noise where they tie."""
        scores = log_w + noise
        rest = np.delete(scores, (first, other), axis=1).max(axis=1, initial=-np.inf)
        lead = scores[:, first] - scores[:, other]
        clear = np.minimum(scores[:, first], scores[:, other]) > rest + CLOSE
        bounds = []
        for token, side in ((other, lead < -CLOSE), (first, lead > CLOSE)):
            position = np.argmin(np.where(clear & side, np.abs(lead), np.inf))
            assert self.at(among[position]) == (kept, token)
            bounds.append(noise[position, first] - noise[position, other])
        return float(sum(bounds)) / 2


def block(p: Array, q: Array, chain: Chain) -> Iterator[Outcome]:
    """The kernels' block rule on one chain; the reference only says where to look."""
    with np.errstate(divide="ignore"):
        logits, log_q = (mx.array(np.log(x), mx.float32) for x in (p, q))
    case = Measured(Sampling(temperature=1.0), logits, chain, log_q)
    h, weights = block_reference(p, q, chain)
    u, noise = uniforms(len(chain)), gumbels(RESIDUAL, p.shape[1])
    later, refused = 1.0, np.ones(POSITIONS, bool)
    for kept in range(len(chain), -1, -1):
        among, chance = np.flatnonzero(refused), 1.0
        if kept:
            chance = h[kept - 1]
            bar = u[:, kept - 1]
            if later > RARE:
                chance = case.chance(kept, chance, among, bar[among])
            among = among[bar[among] < h[kept - 1] - CLOSE]
            refused &= bar > h[kept - 1] + CLOSE
        following = normalised(weights[kept], p[kept])
        if later * chance > RARE:
            following = case.weights(kept, following, among, noise[among])
        yield Outcome(later * chance, kept, following)
        later *= 1 - chance


def assert_exact(kind: str, depth: int) -> None:
    models = family(kind, depth, np.random.default_rng([depth, *kind.encode()]))
    with installed(inspected=False):
        assert emitted(models, block).error < ERROR


@pytest.mark.parametrize(("kind", "depth"), [*((kind, 1) for kind in KINDS), ("near", 2)])
def test_block_as_measured_gives_the_targets_distribution(kind: str, depth: int) -> None:
    assert_exact(kind, depth)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_block_as_measured_gives_the_targets_distribution_at_depth_2(kind: str) -> None:
    assert_exact(kind, 2)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0),
        Sampling(temperature=0.5, top_p=0.7),
        Sampling(temperature=1.3, top_k=3),
        Sampling(temperature=0.9, min_p=0.25),
    ],
)
def test_draws_as_measured_have_the_distribution_of_the_pipeline(sampling: Sampling) -> None:
    logits = np.array([1.5, 0.25, 1.0, -0.5, 0.75])
    expected = np.exp(distribution(sampling, logits).log_p)
    case = Measured(sampling, mx.array(logits[None], mx.float32), (), None)
    with installed(inspected=False):
        found = case.weights(0, expected, np.arange(POSITIONS), gumbels(TARGET, 5))
    assert np.abs(found - expected).max() < ERROR


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("r + (1 - after)", "r + 1"),
        ("fma(b, p, -q)", "fma(1.0f, p, -q)"),
        ("highest = max(highest, walk)", "highest = max(0.0f, walk)"),
    ],
)
def test_the_measurement_rejects_a_wrong_rule(
    monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    broken = mutate(accept.BLOCK, Mutant("", old, new, kernel="accept_block"))
    monkeypatch.setattr(accept, "BLOCK", broken)
    with pytest.raises(AssertionError):
        assert_exact("near", 2)
