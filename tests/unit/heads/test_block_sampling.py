"""Sampled replies drafted block by block have the target's distribution."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from architectures import ARCHITECTURES
from blockfiles import PACKAGINGS, Packaging, block_of, tensors_of
from exact import Array, Family, emitted, excess, judged
from headfiles import written
from replies import finish
from test_decoding import Ids
from test_head_numbers import TOKENS
from tinymodels import VOCABULARY, built, tiny

from macspec import Sampling, Session
from macspec.drafters import BlockModel
from macspec.heads import head_in, open_head
from macspec.models import Pair
from macspec.models.cached import CachedModel
from macspec.verification import block

SMALL = 12
PROMPT = [1, 7, 3, 3, 9, 2, 11, 5]
LENGTH, REPLIES = 3, 700
USUAL = 4.0
"""Standard deviations that a right rule stays within on the seeds below."""


@pytest.mark.parametrize("name", ["dflash2", "speculators"])
def test_a_round_gives_the_targets_joint_distribution(
    pocket: Pair, tmp_path: Path, name: str
) -> None:
    """Over all chains of two tokens: 16 candidates, and a reduced vocabulary, of 61 ids."""
    head = block_of(pocket, "llama", name, tmp_path).module
    target = CachedModel(tiny("llama"), VOCABULARY)
    target.show(head.wanted)
    target.read(TOKENS[:19])
    stepper = BlockModel(head, target, 4096)
    sampling = Sampling(temperature=0.8, top_k=24, logit_bias=((4, 2.0), (9, -1.0)))

    def row(logits: mx.array) -> Array:
        q = np.exp(np.array(sampling.scores(logits)[0], np.float64))
        return np.asarray(q / q.sum())

    first = row(stepper.first(TOKENS[:20], 2, mx.async_eval))
    stepper.next(mx.array([0], mx.uint32), mx.async_eval)
    second = np.stack([row(stepper.next(mx.array([it]), mx.async_eval)) for it in range(61)])
    rng = np.random.default_rng(1)
    p = [rng.dirichlet(np.ones(61), (61,) * prefix) for prefix in range(3)]
    family = Family([it.reshape((61,) * (at + 1)) for at, it in enumerate(p)], [first, second])
    assert emitted(family, judged(block.judge)).error < 1e-12
    most = 16 if name == "dflash2" else 24
    assert (first > 0).sum() == most
    assert ((second > 0).sum(-1) == most).all()


def small_session(pair: Pair, name: str, folder: Path, **options: Any) -> Session:
    """A session over a target of 12 tokens, with a block drafter for it."""
    module = built({**ARCHITECTURES["llama"], "vocab_size": SMALL})
    target = replace(pair.target, module=module, width=SMALL, config={"hidden_size": 64})
    form = PACKAGINGS[name]
    tensors = {it: _cut(it, array, form) for it, array in tensors_of(form).items()}
    files = head_in("a head", written(folder, tensors, dict(form.config)))
    assert files is not None
    head = open_head(files, target)
    small = replace(
        pair, target=target, draft=None, vocabulary=SMALL, stop_ids=frozenset(), head=head
    )
    session = Session(small, method=head.kind, **options)
    session._prompting._templates[None] = Ids(session._prompting.format)  # type: ignore[assignment]
    return session


def _cut(name: str, array: mx.array, form: Packaging) -> mx.array:
    """A tensor for a vocabulary of 12; a reduced one of 8."""
    if name == "d2t":
        return mx.array([0, 0, 0, 1, 1, 2, 3, 4], mx.int64)
    wide = any(it in name for it in ("embed_tokens", "lm_head", "markov", "codebook"))
    if not wide:
        return array
    reduced = "reduced" in form.parts and ("lm_head" in name or "markov_w2" in name)
    return 4 * array[: 8 if reduced else SMALL]


def law(module: Any, sampling: Sampling) -> Array:
    """The target's distribution of the first tokens of a reply, [12] * LENGTH."""
    texts = [[*PROMPT, *it] for it in product(range(SMALL), repeat=LENGTH - 1)]
    logits = module(mx.array(texts))[:, len(PROMPT) - 1 :]
    p = np.exp(np.array(sampling.scores(logits.reshape(-1, SMALL)), np.float64))
    rows = p.reshape(*(SMALL,) * (LENGTH - 1), LENGTH, SMALL)
    return np.asarray(rows[0, 0, 0][:, None, None] * rows[:, 0, 1][:, :, None] * rows[..., 2, :])


def pooled(expected: Array) -> list[Array]:
    """The cells in groups of which each is expected to be seen 8 times or more."""
    order, held = np.argsort(expected), 0.0
    groups: list[list[int]] = [[]]
    for cell in order:
        if held >= 8:
            groups, held = [*groups, []], 0.0
        groups[-1].append(cell)
        held += expected[cell]
    return [np.array([*groups[-2], *groups[-1]]), *map(np.array, groups[:-2])]


CASES = [("dflash2", "block"), ("speculators", "block"), ("deepspec", "match")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rule"), CASES)
def test_the_whole_path_over_twelve_tokens(
    pocket: Pair, tmp_path: Path, name: str, rule: str
) -> None:
    session = small_session(pocket, name, tmp_path, rule=rule, depth=4)
    sampling = Sampling(temperature=0.9, top_k=9)
    expected = REPLIES * law(session.pair.target.module, sampling)
    counts = np.zeros(expected.shape)
    drafted = accepted = 0
    for seed in range(REPLIES):
        text = " ".join(map(str, PROMPT))
        done = finish(session, text, replace(sampling, seed=seed), raw=True, max_tokens=LENGTH)
        counts[done.token_ids] += 1
        drafted, accepted = drafted + done.stats.drafted, accepted + done.stats.accepted
    assert 0 < accepted < drafted
    for axis in (2, 0):
        seen, wanted = counts.sum(axis).ravel(), expected.sum(axis).ravel()
        groups = pooled(wanted)
        assert (
            excess([seen[it].sum() for it in groups], [wanted[it].sum() for it in groups]) < USUAL
        )
