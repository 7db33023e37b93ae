"""A draft model with mask tokens guesses a round in one pass, and no mask stays in its cache."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import pytest
from replies import Rows, assert_like_fresh
from test_decoding import GREEDY, KEYED, PROMPT, session_of, tokens_of
from tinymodels import VOCABULARY, tiny

from macspec import Session
from macspec.drafters import MaskedModel
from macspec.models import Pair
from macspec.models.cached import CachedModel

MASK = 50


def test_the_logits_of_64_committed_tokens() -> None:
    """Beside mlx-lm's model on the whole text with masks behind it, without a cache."""
    module = tiny("llama")
    model = CachedModel(module, VOCABULARY)
    masked = MaskedModel(model, 4096, MASK)
    rows = Rows(module)
    model.module = rows
    text = [(11 * i * i + 5 * i) % VOCABULARY for i in range(64)]
    for stop in range(1, 65):
        # Once in four rounds a token is taken back, and its place read anew.
        masked.rollback(stop - 2 if stop % 4 == 0 else stop)
        guesses = [masked.first(text[:stop], 4, mx.async_eval)]
        guesses += [masked.next(mx.array([1]), mx.async_eval) for _ in range(3)]
        expected = module(mx.array([[*text[:stop], MASK, MASK, MASK]]))[0, -4:]
        assert mx.abs(mx.concatenate(guesses) - expected).max().item() < 1e-4
        assert masked.length == stop
    assert rows.seen[:5] == [4, 4, 4, 5, 4]


@pytest.mark.parametrize("rule", ["keyed", "match"])
def test_replies_are_those_of_plain_decoding(pocket: Pair, rule: str) -> None:
    session = session_of(pocket, "llama")
    assert session.pair.draft is not None
    draft = replace(session.pair.draft, config={"pard_token": MASK})
    ids = session._prompting._templates[None]
    session = Session(replace(session.pair, draft=draft), method="draft", depth=4, rule=rule)
    session._prompting._templates[None] = ids
    assert isinstance(session.decoder.portfolio.models("draft")[0].stepper, MaskedModel)
    plain = session_of(pocket, "llama", method="off", rule="keyed")
    for sampling in (GREEDY, KEYED):
        expected = tokens_of(plain, PROMPT, sampling, 24)
        assert tokens_of(session, PROMPT, sampling, 24) == expected
        assert_like_fresh(session)
    assert session.stats.accepted > 0
