"""Replies drafted block by block are those of plain decoding, however badly a head guesses."""

from __future__ import annotations

from pathlib import Path

import pytest
from blockfiles import PACKAGINGS, block_of
from replies import assert_like_fresh
from test_decoding import GREEDY, KEYED, PROMPT, session_of, tokens_of

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
    session = session_of(pocket, target, head=head, method=head.kind, depth=depth, rule="keyed")
    for sampling in (GREEDY, KEYED):
        expected = tokens_of(plain, PROMPT, sampling, COUNT)
        assert tokens_of(session, PROMPT, sampling, COUNT) == expected
        assert_like_fresh(session)
    assert session.stats.drafted > COUNT
