"""A model whose rows see later rows is found out, and no other."""

from __future__ import annotations

import pytest
from test_decoding import GREEDY, session_of, tokens_of
from tinymodels import VOCABULARY, tiny

from macspec.models import Pair, cached
from macspec.models.cached import CachedModel
from macspec.models.causal import SEES_AHEAD, why_not_causal


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "qwen3_moe", "deepseek_v3"])
def test_a_causal_model_may_speculate(name: str) -> None:
    assert why_not_causal(tiny(name), VOCABULARY) is None


def test_a_model_whose_rows_see_later_ones_runs_plain(pocket: Pair) -> None:
    session = session_of(pocket, "phi3small", "llama", method="draft", depth=4)
    assert session.decoder.target.cache.reason == SEES_AHEAD
    tokens_of(session, [3, 1, 4, 1, 5], GREEDY, 12)
    assert session.stats.drafted == 0
    assert session.why == SEES_AHEAD


def test_a_model_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module = tiny("llama")
    CachedModel(module, VOCABULARY)
    monkeypatch.setattr(cached.ModelCache, "__init__", None)
    assert why_not_causal(module, VOCABULARY) is None
