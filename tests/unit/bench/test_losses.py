"""What the controller may lose: to acceptance that is made to mislead it, and to noise."""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Callable

import pytest

from macspec.bench.published import PublishedCurve, published
from macspec.bench.simulate import Player, fresh, sweep
from macspec.bench.traces import NOTHING, Guess, Recorded, runs, shipped

CURVES = {curve.name: curve for curve in published() if not curve.model}
QUICK = "m4-pro-4bit"
STEEP = "m3-ultra-4bit"

TOKENS = 600
"""Tokens of an adversary."""


def adversary(kind: str, seed: int) -> Recorded:
    """A text whose draft model misleads whoever believes what it did so far."""
    chance, at = random.Random(seed), range(TOKENS)
    right: dict[str, Callable[[int], bool]] = {
        "alternating": lambda it: it // (2 + seed % 3) % 2 == 0,
        "every other": lambda it: it % 2 == 0,
        "drifting": lambda it: chance.random() < 0.5 + 0.5 * math.cos(it / 80 + seed),
        "flipping": lambda it: it // 100 % 2 == 0,
        "lure": lambda it: it < 40,
        "poor": lambda it: chance.random() < 0.3,
        "none": lambda it: False,
        "decoy": lambda it: False,
    }
    guesses = [Guess(32, chance.choice((5, 6, 7)), 0) if it > 5 else NOTHING for it in at]
    lookups = {"ngram": guesses} if kind == "decoy" else {}
    draft = runs([right[kind](it) for it in at])
    return Recorded(40, TOKENS, {"draft": draft}, lookups)


KINDS = ("alternating", "every other", "drifting", "flipping", "lure", "poor", "none", "decoy")

SEEDS = [4, pytest.param(5, marks=pytest.mark.slow)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    [pytest.param(it, marks=() if it in (QUICK, STEEP) else pytest.mark.slow) for it in CURVES],
)
@pytest.mark.parametrize("measured", [True, False], ids=["measured", "unmeasured"])
def test_at_most_2_percent_are_lost_from_token_64_on(
    name: str, kind: str, seed: int, measured: bool
) -> None:
    player = Player(CURVES[name], fresh(CURVES[name], ["draft"]), seed)
    if measured:
        player.measure(100)
    cost, tokens = 0.0, 0
    for played in player.rounds(adversary(kind, seed)):
        cost, tokens = cost + played.cost, tokens + played.tokens
        assert tokens < 64 or tokens / cost >= 0.98, tokens


class Noisy(Player):
    """Plays on a machine whose speed changes; what is measured when idle is not disturbed."""

    def __init__(self, curve: PublishedCurve, seed: int, slower: Callable[[float], float]) -> None:
        super().__init__(curve, fresh(curve, ["draft"]), seed)
        self._slower, self._time, self._idle = slower, 0.0, False

    def measure(self, length: int) -> None:
        self._idle = True
        super().measure(length)
        self._idle = False

    def _shaken(self, cost: float) -> float:
        factor = 1.0 if self._idle else self._slower(self._time)
        self._time += cost
        return super()._shaken(cost) * factor


def bursts(seed: int) -> Callable[[float], float]:
    """Twice as slow for 3 to 30 plain steps, every 60 or so."""
    chance, edges = random.Random(seed), [0.0]
    while edges[-1] < 20_000:
        begin = edges[-1] + chance.expovariate(1 / 60)
        edges += [begin, begin + chance.uniform(3, 30)]
    return lambda time: 1.0 if bisect(edges, time) % 2 else 2.0


NOISE: dict[str, Callable[[int], Callable[[float], float]]] = {
    "bursts": bursts,
    "step": lambda seed: lambda time: 1.5 if int(time / 400) % 2 else 1.0,
    "drift": lambda seed: lambda time: 1 + 0.5 * math.sin(time / 300 + seed),
}


@pytest.mark.parametrize("seed", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize(
    "text", ["chat-0.7", *(pytest.param(it, marks=pytest.mark.slow) for it in ("chat-0", "chat-1"))]
)
@pytest.mark.parametrize(
    "name", [QUICK, *(pytest.param(it, marks=pytest.mark.slow) for it in CURVES if it != QUICK)]
)
def test_noise_costs_little(name: str, noise: str, seed: int, text: str) -> None:
    curve = CURVES[name]
    (trace,) = (it for it in shipped() if it.name == text)
    player = Noisy(curve, seed, NOISE[noise](seed))
    oracle = max(it.speed for it in sweep(trace, curve).values())
    for _ in ("cold", "warm"):
        assert 1 - player.play(trace).speed / oracle <= 0.04
