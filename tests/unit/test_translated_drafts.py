"""A draft model that does not know every id of the target changes no text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models import llama
from replies import caches, finish

from macspec import Sampling, Session
from macspec.models import Pair
from macspec.models.vocabulary import TranslatedModel, translation

ROWS = 2000
"""Embeddings of the narrow draft model; the tokenizer has 4096 ids."""

CHAT = "Tell me a story about a fox."
TOKENS = 16


@pytest.fixture(scope="module")
def narrow(pocket: Pair) -> Pair:
    """The built-in pair, its draft model without the rows of the last ids, and one of its special
    tokens under another name."""
    draft = pocket.draft
    assert draft is not None
    source: Any = draft.module
    module: Any = llama.Model(llama.ModelArgs.from_dict({**draft.config, "vocab_size": ROWS}))
    module.update(source.parameters())
    module.model.embed_tokens.weight = source.model.embed_tokens.weight[:ROWS]
    cut = replace(draft, module=module, width=ROWS, tokenizer=Renamed(draft.tokenizer))
    pair = replace(pocket, draft=cut, translation=translation(pocket.target, cut))
    assert pair.translation is not None
    assert pair.translation.unknown == 4096 - ROWS + 1
    return pair


class Renamed:
    """The built-in tokenizer, with another name for the tag of a user's turn."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def get_vocab(self) -> dict[str, int]:
        table = dict(self._tokenizer.get_vocab())
        table["<|human|>"] = table.pop("<|user|>")
        return table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


SAMPLINGS = {
    "block": Sampling(temperature=0),
    "keyed": Sampling(temperature=0.8, seed=3),
    "match": Sampling(temperature=1.0, top_p=0.9, top_k=30, repetition_penalty=1.2, seed=4),
}


@pytest.mark.parametrize(
    ("rule", "depth"),
    [
        ("block", 3),
        ("keyed", 3),
        *(
            pytest.param(rule, depth, marks=pytest.mark.slow)
            for rule in SAMPLINGS
            for depth in (1, 4, 6)
        ),
    ],
)
def test_the_text_is_plain_decodings(narrow: Pair, rule: str, depth: int) -> None:
    sampling = SAMPLINGS[rule]
    plain = finish(Session(narrow, method="off"), CHAT, sampling, max_tokens=TOKENS)
    assert any(token >= ROWS for token in plain.token_ids)
    session = Session(narrow, method="draft", depth=depth, rule=rule)
    drafted = finish(session, CHAT, sampling, max_tokens=TOKENS)
    assert drafted.token_ids == plain.token_ids
    assert 0 < drafted.stats.accepted < drafted.stats.drafted
    assert isinstance(caches(session)["draft"], TranslatedModel)


def test_what_it_read_is_read_translated(narrow: Pair) -> None:
    assert narrow.draft is not None
    assert narrow.translation is not None
    ids = mx.array([7, 4000, 3, 5, 2001], mx.uint32)
    read = narrow.translation.ids[ids]
    assert mx.max(read).item() < ROWS
    model = TranslatedModel(narrow.draft.module, narrow.translation)
    logits = model.logits(ids, 2)
    expected = narrow.draft.module(read[None])[0, -2:]
    assert logits.shape == (2, 4096)
    known = narrow.translation.known[:ROWS]
    assert mx.all(logits[:, ROWS:] == -mx.inf).item()
    assert mx.all(logits[:, 3] == -mx.inf).item()
    assert mx.allclose(mx.where(known, logits[:, :ROWS], 0), mx.where(known, expected, 0))
    other = TranslatedModel(narrow.draft.module, narrow.translation)
    chunk: Any = ids[:-2].tolist()
    other.read(chunk)
    assert mx.allclose(other.logits(ids[-2:], 2), logits, atol=1e-4)
