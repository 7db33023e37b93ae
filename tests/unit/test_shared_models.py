"""The same equality on other models and on prompts that other people wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from replies import finish, plain_greedy, prompt_tokens

from macspec import Sampling, Session, load_pair
from macspec.models import Pair

pytestmark = pytest.mark.slow

GREEDY = Sampling(temperature=0)
KEYED = Sampling(temperature=0.7, seed=31)
TOKENS = 32
ROOM = 64


def questions(shared: Path) -> list[str]:
    """Openings of Vicuna-bench, MT-bench and an instruction set."""
    found = []
    for name in ("vicuna_bench.question.jsonl", "mt_bench.question.jsonl"):
        for line in (shared / "data" / "prompts" / name).read_text(encoding="utf-8").splitlines():
            found.append(json.loads(line)["turns"][0])
    rows = json.loads((shared / "data" / "prompts" / "rasbt_instructions.json").read_text("utf-8"))
    found += [f"{row['instruction']} {row['input']}".strip() for row in rows]
    return found


def fitting(pair: Pair, shared: Path, every: int) -> list[list[dict[str, str]]]:
    """Each n-th question that leaves room for a reply."""
    chats = [[{"role": "user", "content": text}] for text in questions(shared)[::every]]
    return [chat for chat in chats if len(prompt_tokens(pair, chat)) + ROOM <= pair.context]


def check(pair: Pair, chats: list[list[dict[str, str]]]) -> None:
    for number, chat in enumerate(chats):
        depth = 1 + number % 8
        expected = plain_greedy(pair, prompt_tokens(pair, chat), TOKENS)
        sampled = finish(Session(pair, method="off"), chat, KEYED, max_tokens=TOKENS).token_ids
        for method in ("draft", "ngram"):
            session = Session(pair, method=method, depth=depth, rule="keyed")
            assert finish(session, chat, GREEDY, max_tokens=TOKENS).token_ids == expected
            assert finish(session, chat, KEYED, max_tokens=TOKENS).token_ids == sampled


def test_questions_of_others(small: Pair, shared: Path) -> None:
    check(small, fitting(small, shared, 600))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_many_questions_of_others(pocket: Pair, shared: Path, part: int) -> None:
    check(pocket, fitting(pocket, shared, 90)[part::4])


def test_a_story_model_without_a_draft(shared: Path) -> None:
    pair = load_pair(str(shared / "data" / "models" / "stories260K"))
    module: Any = pair.target.module
    module.set_dtype(mx.float32)
    for text in ("Once upon a time", "Lily and Tom went to the park. Lily and Tom"):
        plain = Session(pair, method="off")
        expected = finish(plain, text, GREEDY, raw=True, max_tokens=100)
        prompt = plain.decoder.tokens[: expected.stats.prompt_tokens]
        assert expected.token_ids == plain_greedy(pair, prompt, 100)
        for depth in (1, 8):
            session = Session(pair, method="ngram", depth=depth)
            assert finish(session, text, GREEDY, raw=True, max_tokens=100).text == expected.text
            assert session.stats.accepted > 0


def test_a_draft_with_another_vocabulary_is_left_out(pocket: Pair, shared: Path) -> None:
    models = shared / "data" / "models"
    pair = load_pair(str(models / "chat-8.7M"), str(models / "stories260K"))
    assert pair.draft is None
    assert pair.draft_off is not None
    assert finish(Session(pair), "Hello", GREEDY, max_tokens=4).stats.tokens > 0
