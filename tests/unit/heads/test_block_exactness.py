"""Replies drafted block by block are those of plain decoding, however badly a head guesses."""

from __future__ import annotations

import random
from pathlib import Path

import mlx.core as mx
import pytest
from blockfiles import PACKAGINGS, block_of
from replies import assert_like_fresh
from test_decoding import KEYED, PROMPT, session_of, tokens_of
from test_head_exactness import WAYS

from macspec.drafters import ChainDrafter
from macspec.models import Pair

TARGETS = ("llama", "qwen3_5", "gemma3_text")
COUNT = 24
QUICK = [("llama", "dflash2", 7), ("qwen3_5", "deepspec", 4), ("gemma3_text", "speculators", 3)]
SLOW = [
    pytest.param(TARGETS[(at + shift) % 3], name, depth, marks=pytest.mark.slow)
    for at, name in enumerate(PACKAGINGS)
    for shift, depth in ((0, 2), (1, 8))
]


@pytest.mark.parametrize(("target", "name", "depth"), [*QUICK, *SLOW])
def test_replies_are_those_of_plain_decoding(
    pocket: Pair, tmp_path: Path, target: str, name: str, depth: int
) -> None:
    plain = session_of(pocket, target, method="off", rule="keyed")
    head = block_of(pocket, target, name, tmp_path)
    session = session_of(pocket, target, head=head, method=head.kind, depth=depth)
    for sampling, session.rule in WAYS:
        expected = tokens_of(plain, PROMPT, sampling, COUNT)
        assert tokens_of(session, PROMPT, sampling, COUNT) == expected
        assert_like_fresh(session)
    assert session.stats.drafted > COUNT


def test_a_block_drafter_stays_in_step_through_edits_and_switches(
    pocket: Pair, tmp_path: Path
) -> None:
    """After any history it guesses as one that read the same text at once."""
    rng = random.Random(3)
    head = block_of(pocket, "qwen3_5", "dflash2", tmp_path)
    session = session_of(pocket, "qwen3_5", head=head, rule="keyed", depth=4)
    plain = session_of(pocket, "qwen3_5", method="off", rule="keyed")
    for _ in range(3):
        prompt = PROMPT[: rng.randrange(8, len(PROMPT))]
        expected = tokens_of(plain, prompt, KEYED, 16)
        reply = session.reply(" ".join(map(str, prompt)), KEYED, raw=True, max_tokens=16)
        for _ in reply:
            session.method = rng.choice(["auto", "draft", "dflash", "dflash", "off", "ngram"])
            if rng.random() < 0.05:
                reply.close()
                break
        else:
            assert session.finished is not None
            assert session.finished.token_ids == expected
    for _ in session.measure():
        pass
    fresh = session_of(pocket, "qwen3_5", head=head, method="dflash", rule="keyed", depth=4)
    guesses = []
    for it in (session, fresh):
        it.method = "dflash"
        tokens_of(it, PROMPT, KEYED, 1)
        drafter = it.decoder.portfolio.drafters["dflash"]
        assert isinstance(drafter, ChainDrafter)
        logits = drafter.stepper.first(it.decoder.tokens, 4, mx.async_eval)
        guesses.append(mx.where(mx.isfinite(logits), logits, 0.0))
    assert mx.abs(guesses[0] - guesses[1]).max().item() < 1e-4


@pytest.mark.parametrize("name", ["dflash2", "deepspec"])
def test_damaged_weights_guess_no_distribution_that_is_none(
    pocket: Pair, tmp_path: Path, name: str
) -> None:
    head = block_of(pocket, "llama", name, tmp_path)
    head.module.norm.weight = head.module.norm.weight * mx.nan
    session = session_of(pocket, "llama", head=head, method=head.kind, rule="keyed", depth=3)
    tokens_of(session, PROMPT, KEYED, 1)
    drafter = session.decoder.portfolio.drafters[head.kind]
    assert isinstance(drafter, ChainDrafter)
    logits = drafter.stepper.first(session.decoder.tokens, 3, mx.async_eval)
    assert not mx.any(mx.isnan(logits)).item()
