"""What the loop writes with two tiny models has the target's distribution: chi-square, fixed seeds.

The models' next token depends on the last two, so the text is a Markov chain whose law is known.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import mlx.core as mx
import numpy as np
import pytest
from exact import Array, excess
from mlx import nn
from replies import Unheard

from macspec.choices import RULES
from macspec.control import AcceptanceEstimate, Controller, CostCurve
from macspec.decode import Decoder
from macspec.drafters import Context, Drafter, DraftModel, NGram, Proposal
from macspec.events import Round
from macspec.kernels import Kernels
from macspec.metal.faults import FAULT
from macspec.rounds import Reply
from macspec.sampling import Sampling
from macspec.settings import Settings
from macspec.stats import ReplyCounter

SIZE = 3
PROMPT = [0, 1]
LENGTH = 1200
"""Tokens: an anticipating drafter is then 9 standard deviations off."""
USUAL = 4.0
"""Standard deviations that a right rule stays within on the seeds below."""
WARM = Sampling(temperature=1.0)
CUT = Sampling(temperature=0.7, top_k=2)
Between = Callable[[Decoder], None]


class TableModel(nn.Module):
    """Logits from a table [SIZE, SIZE, SIZE] by the last two tokens, which lie in a real cache."""

    def __init__(self, distributions: Array) -> None:
        super().__init__()
        self.table = mx.array(np.log(distributions), mx.float32)
        self.layers = [None]

    def __call__(self, tokens: mx.array, cache: Any) -> mx.array:
        rows = tokens.shape[1]
        ids = tokens.astype(mx.float32)[:, None, :, None]
        seen, _ = cache[0].update_and_fetch(ids, ids)
        seen = mx.concatenate([mx.zeros(1), seen[0, 0, :, 0]])[-rows - 1 :].astype(mx.int32)
        return self.table[seen[:-1], seen[1:]][None]


class Tables:
    """The target's and the draft's tables [SIZE, SIZE, SIZE], and a loop over models of them."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.p = 0.7 * rng.dirichlet(np.full(SIZE, 0.7), (SIZE, SIZE)) + 0.3 / SIZE
        self.q = 0.5 * self.p + 0.5 * rng.dirichlet(np.full(SIZE, 0.7), (SIZE, SIZE))

    def decoder(self, settings: Settings, kernels: Kernels | None = None) -> Decoder:
        known = {"name": "", "context": 10**6, "config": {}, "spread": None}
        target, draft = (
            SimpleNamespace(module=TableModel(table), **known) for table in (self.p, self.q)
        )
        pair = SimpleNamespace(
            target=target,
            draft=draft,
            head=None,
            translation=None,
            vocabulary=SIZE,
            context=10**6,
            draft_off=None,
            plan=SimpleNamespace(chunk=512),
        )
        controller = Controller(CostCurve(), AcceptanceEstimate())
        clock = time.perf_counter
        decoder = Decoder(cast(Any, pair), None, [NGram()], controller, clock, kernels)
        decoder.settings = settings
        return decoder

    def law(self, sampling: Sampling) -> Array:
        """What a reply's tokens are drawn from, [SIZE, SIZE, SIZE]."""
        ranks = self.p.argsort(axis=-1).argsort(axis=-1)
        kept = np.where(ranks >= SIZE - (sampling.top_k or SIZE), self.p, 0)
        law = kept ** (1 / sampling.temperature)
        return cast(Array, law / law.sum(axis=-1, keepdims=True))


def write(decoder: Decoder, seed: int, length: int, between: Between | None = None) -> list[int]:
    """One reply; ``between`` is called after each round."""
    counter = ReplyCounter(len(PROMPT))
    reply = Reply(cast(Any, Unheard()), frozenset(), length, "length", seed, counter, 0.0)
    while reply.reason is None:
        try:
            list(decoder.prefill(reply, [*PROMPT, *reply.ids]))
            for event in decoder.decode(reply):
                if between is not None and isinstance(event, Round):
                    between(decoder)
        except RuntimeError:
            assert decoder.kernels.in_use.running
            decoder.kernels.blame()
    assert len(reply.ids) == length
    return reply.ids


def surprise(text: list[int], law: Array) -> float:
    """Chi-square of each next token given the two before it, in standard deviations."""
    a = np.array([*PROMPT, *text])
    counts = np.zeros((SIZE, SIZE, SIZE))
    np.add.at(counts, (a[:-2], a[1:-1], a[2:]), 1)
    expected = counts.sum(axis=-1, keepdims=True) * law
    return excess(counts, expected, freedom=int((law > 0).sum()) - SIZE * SIZE)


SETTINGS = [
    Settings(method, depth, rule, sampling)
    for rule, method, depth, sampling in (
        ("block", "draft", 3, WARM),
        ("block", "draft", 2, CUT),
        ("block", "ngram", 3, WARM),
        ("keyed", "draft", 3, CUT),
        ("match", "draft", 3, WARM),
        ("block", "off", 0, WARM),
    )
]
names = pytest.mark.parametrize(
    "settings", SETTINGS, ids=lambda s: f"{s.rule}-{s.method}-{s.depth}-{s.sampling.temperature}"
)


@names
def test_every_next_token_has_the_targets_distribution(settings: Settings) -> None:
    tables = Tables(1)
    text = write(tables.decoder(settings), seed=1, length=LENGTH)
    assert surprise(text, tables.law(settings.sampling)) < USUAL


@pytest.mark.slow
@names
def test_every_next_token_has_the_targets_distribution_in_a_long_text(settings: Settings) -> None:
    tables = Tables(0)
    text = write(tables.decoder(settings), 0, length=6000)
    assert surprise(text, tables.law(settings.sampling)) < USUAL


def anyhow(seed: int) -> Between:
    """Changes everything at random, though never for what was drafted."""
    rng = random.Random(seed)

    def change(decoder: Decoder) -> None:
        if rng.random() < 0.3:
            decoder.settings = replace(
                decoder.settings,
                rule=rng.choice(sorted(RULES)),
                method=rng.choice(["draft", "draft", "ngram", "off"]),
                depth=rng.randint(0, 6),
            )

    return change


def test_settings_may_change_between_any_two_rounds() -> None:
    tables = Tables(2)
    text = write(tables.decoder(SETTINGS[0]), 2, length=LENGTH, between=anyhow(2))
    assert surprise(text, tables.law(WARM)) < USUAL


class Faulty(Kernels):
    """MLX's, one launch in ten of which spoils what it computes; they are never given up."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._chance, self._spoiled = random.Random(seed), False

    def accept(self, *given: Any) -> Any:
        verdict = super().accept(*given)
        self.in_use.note("accept")
        if self._chance.random() < 0.1:
            self._spoiled = True
            return replace(verdict, accepted=verdict.accepted * 0, token=verdict.token * 0)
        return verdict

    def check(self) -> None:
        spoiled, self._spoiled = self._spoiled, False
        if spoiled:
            raise RuntimeError(FAULT)


@pytest.mark.parametrize(
    "settings", [SETTINGS[0], *(pytest.param(it, marks=pytest.mark.slow) for it in SETTINGS[3::2])]
)
def test_faults_of_the_gpu_leave_the_distribution_as_it_is(settings: Settings) -> None:
    tables, kernels = Tables(1), Faulty(1)
    text = write(tables.decoder(settings, kernels), 1, length=LENGTH)
    assert kernels.faults > 20
    assert surprise(text, tables.law(settings.sampling)) < USUAL


def joint(tables: Tables, settings: Settings, length: int, replies: int) -> float:
    """Chi-square of whole short replies, one for each seed, in standard deviations."""
    decoder, law = tables.decoder(settings), tables.law(settings.sampling)
    counts = np.zeros([SIZE] * length)
    for seed in range(replies):
        counts[tuple(write(decoder, seed, length))] += 1
    words = [*PROMPT, *np.indices(counts.shape)]
    steps = (law[words[i], words[i + 1], words[i + 2]] for i in range(length))
    return excess(counts, replies * np.prod(list(steps), axis=0))


def test_short_replies_have_the_targets_joint_distribution() -> None:
    assert joint(Tables(3), SETTINGS[0], length=2, replies=600) < USUAL


@pytest.mark.slow
@names
def test_replies_have_the_targets_joint_distribution(settings: Settings) -> None:
    assert joint(Tables(3), settings, length=3, replies=3000) < USUAL


class Anticipating:
    """Drops drafted tokens for their own q: what a rule for sampled chains must not allow."""

    name = DraftModel.name

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.offer, self.observe, self.rollback = drafter.offer, drafter.observe, drafter.rollback

    def propose(self, context: Context, depth: int) -> Proposal | None:
        proposal = self._drafter.propose(context, depth)
        assert proposal is not None
        assert proposal.log_q is not None
        chances = mx.take_along_axis(
            mx.softmax(proposal.log_q, axis=-1), proposal.tokens[:, None], axis=1
        )
        keep = [*(chances[:, 0] < 0.4).tolist(), True].index(True)
        if keep == 0:
            return None
        return Proposal(proposal.tokens[:keep], proposal.log_q[:keep])


def test_the_chi_square_rejects_an_anticipating_drafter() -> None:
    tables = Tables(0)
    decoder = tables.decoder(SETTINGS[0])
    decoder.portfolio.drafters["draft"] = Anticipating(decoder.portfolio.drafters["draft"])
    assert surprise(write(decoder, seed=0, length=LENGTH), tables.law(WARM)) > 2 * USUAL
