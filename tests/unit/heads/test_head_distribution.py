"""What the loop writes with a random head has the target's distribution: chi-square, fixed seeds.

A small llama's next token depends on all before it. So the counts of each token after each other
one are held against the sums of its chances, by their covariance.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import mlx.core as mx
import numpy as np
import pytest
from architectures import ARCHITECTURES
from exact import Array, Family, emitted, judged, match, token_rejection
from headfiles import EAGLE, WIDTH, drawn, eagle_tensors, head_of, mtp_tensors, target_of, written
from replies import Unheard
from tinymodels import built, tiny

from macspec.control import AcceptanceEstimate, Controller, CostCurve
from macspec.decode import Decoder
from macspec.drafters import Context, Drafter, HeadModel, Proposal
from macspec.heads import head_in, open_head
from macspec.models import Pair
from macspec.models.cached import CachedModel
from macspec.rounds import Reply
from macspec.sampling import Sampling
from macspec.settings import Settings
from macspec.stats import ReplyCounter
from macspec.verification import block

SIZE = 12
FEW = 3
KNOWN = [0, 1, 3, 4, 6, 7, 9, 11]
"""Ids that the heads know."""
LENGTH = 900
PROMPT = [3, 1, 4, 1, 5]
USUAL = 4.0
"""Standard deviations that a right rule stays within on the seed below."""
WARM = Sampling(temperature=0.6)


def decoder_of(pocket: Pair, folder: Path, kind: str, rule: str, depth: int) -> Decoder:
    module = built({**ARCHITECTURES["llama"], "vocab_size": SIZE})
    target = replace(target_of(pocket, "llama"), module=module, width=SIZE)
    offsets = mx.array([there - here for here, there in enumerate(KNOWN)], mx.int64)
    if kind == "mtp":
        written(folder, mtp_tensors(module) | {"d2t": offsets}, {"model_type": "llama_mtp"})
    else:
        own = drawn({"lm_head.weight": (len(KNOWN), WIDTH)}, 5)
        known = {"d2t": offsets, "t2d": mx.zeros(SIZE, mx.bool_)}
        written(folder, eagle_tensors() | own | known, EAGLE)
    files = head_in("a head", folder)
    assert files is not None
    pair = SimpleNamespace(
        target=target,
        draft=None,
        head=open_head(files, target),
        translation=None,
        vocabulary=SIZE,
        context=10**6,
        draft_off=None,
        plan=SimpleNamespace(chunk=512),
    )
    controller = Controller(CostCurve(), AcceptanceEstimate())
    decoder = Decoder(cast(Any, pair), None, [], controller, time.perf_counter)
    decoder.settings = Settings(kind, depth, rule, WARM)
    return decoder


def surprise(decoder: Decoder, seed: int) -> float:
    """How unlikely a reply is, in standard deviations of a normal."""
    counter = ReplyCounter(len(PROMPT))
    reply = Reply(cast(Any, Unheard()), frozenset(), LENGTH, "length", seed, counter, 0.0)
    list(decoder.prefill(reply, list(PROMPT)))
    list(decoder.decode(reply))
    text = [*PROMPT, *reply.ids]
    logits = decoder.pair.target.module(mx.array([text[:-1]]))[0, len(PROMPT) - 1 :]
    chances = np.array(mx.softmax(logits / WARM.temperature, axis=-1), np.float64)
    before, after = np.array(text[len(PROMPT) - 1 : -1]), np.array(reply.ids)
    statistic, freedom = 0.0, 0
    for token in range(SIZE):
        own = chances[before == token]
        if len(own) < 30:
            continue
        off = np.bincount(after[before == token], minlength=SIZE) - own.sum(axis=0)
        spread = np.diag(own.sum(axis=0)) - own.T @ own
        statistic += float((off @ np.linalg.pinv(spread, rcond=1e-9)) @ off)
        freedom += SIZE - 1
    assert freedom >= 2 * (SIZE - 1)
    third = 2 / (9 * freedom)
    return float(((statistic / freedom) ** (1 / 3) - (1 - third)) / np.sqrt(third))


CASES = [
    ("eagle", "block", 3),
    ("eagle", "match", 2),
    ("eagle", "keyed", 4),
    ("mtp", "block", 2),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rule", "depth"), CASES)
def test_every_next_token_has_the_targets_distribution(
    pocket: Pair, tmp_path: Path, kind: str, rule: str, depth: int
) -> None:
    decoder = decoder_of(pocket, tmp_path, kind, rule, depth)
    assert surprise(decoder, seed=1) < USUAL


@pytest.mark.parametrize("kind", ["eagle", "reduced"])
def test_every_rule_is_exact_with_what_a_head_drafts(
    pocket: Pair, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By enumeration, over three ids of which the head knows two."""
    monkeypatch.setattr("macspec.drafters.head.LEAST", 1000)
    model = CachedModel(tiny("llama"), FEW)
    head = head_of(pocket, "llama", kind, tmp_path).module
    model.show(head.wanted)
    stepper, depth, text = HeadModel(head, model, 4096), 2, [1, 0, 1]
    p, q = [], []
    for length in range(depth + 1):
        rows = []
        for prefix in product(range(FEW), repeat=length):
            model.rollback(0)
            rows.append(chances(model.logits(mx.array([*text, *prefix], mx.uint32), 1)))
        p.append(np.array(rows).reshape([FEW] * (length + 1)))
    for length in range(depth):
        rows = []
        for prefix in product(range(FEW), repeat=length):
            logits = stepper.first(text, depth, mx.async_eval)
            for token in prefix:
                logits = stepper.next(mx.array([token], mx.uint32), mx.async_eval)
            rows.append(chances(logits))
        q.append(np.array(rows).reshape([FEW] * (length + 1)))
    assert all((table[..., 2] == 0).all() for table in q)
    assert all((table[..., 2] > 0).all() for table in p)
    for rule in (judged(block.judge), token_rejection, match):
        assert emitted(Family(p, q), rule).error < 1e-12


def chances(logits: mx.array) -> Array:
    row = np.exp(np.array(Sampling(temperature=1.0).scores(logits)[0], np.float64))
    return row / row.sum()


class Boasting:
    """Says that it might have drafted what its head cannot say."""

    name = "eagle"

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.offer, self.observe, self.rollback = drafter.offer, drafter.observe, drafter.rollback

    def propose(self, context: Context, depth: int) -> Proposal | None:
        proposal = self._drafter.propose(context, depth)
        assert proposal is not None
        assert proposal.log_q is not None
        q = mx.softmax(proposal.log_q, axis=-1)
        return replace(proposal, log_q=mx.log(0.3 * q + 0.7 / SIZE))


@pytest.mark.slow
def test_the_chi_square_rejects_a_head_that_says_more_than_it_draws(
    pocket: Pair, tmp_path: Path
) -> None:
    decoder = decoder_of(pocket, tmp_path, "eagle", "block", 3)
    drafters: Array = cast(Any, decoder.portfolio.drafters)
    drafters["eagle"] = Boasting(cast(Any, drafters["eagle"]))
    assert surprise(decoder, seed=1) > 2 * USUAL
