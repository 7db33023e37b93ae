"""How much further a pass gets than with mlx-lm's own speculative decoding.

Same pair, prompts and depth, a seed for each prompt. mlx-lm's passes are its tokens that are not
from the draft, plus one if the last token is. To see the numbers:

    python -m pytest tests/unit/test_tokens_per_pass.py -m "slow or not slow" -s
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm import stream_generate
from mlx_lm.sample_utils import make_sampler
from replies import finish, prompt_tokens

from macspec import Sampling, Session
from macspec.assets import prompts
from macspec.models import Pair

DEPTH = 4
TOKENS = 64
CHATS = prompts()[:40:3]


def stock(pair: Pair, chat: Any, temperature: float, seed: int) -> tuple[int, int]:
    """Tokens and passes of ``stream_generate`` with a draft model."""
    assert pair.draft is not None
    mx.random.seed(seed)
    from_draft = [
        response.from_draft
        for response in stream_generate(
            pair.target.module,
            pair.target.tokenizer,
            prompt_tokens(pair, chat),
            max_tokens=TOKENS,
            draft_model=pair.draft.module,
            num_draft_tokens=DEPTH,
            sampler=make_sampler(temp=temperature),
        )
    ]
    return len(from_draft), len(from_draft) - sum(from_draft) + from_draft[-1]


def ours(pair: Pair, chat: Any, temperature: float, seed: int, rule: str) -> tuple[int, int]:
    """Tokens and passes of a reply of ours."""
    session = Session(pair, method="draft", depth=DEPTH, rule=rule)
    sampling = Sampling(temperature=temperature, seed=seed)
    stats = finish(session, chat, sampling, max_tokens=TOKENS).stats
    return stats.tokens, stats.passes


def tokens_per_pass(replies: Iterator[tuple[int, int]]) -> float:
    tokens, passes = map(sum, zip(*replies, strict=True))
    return tokens / passes


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("temperature", "block", "keyed"), [(0.0, 0.99, 0.99), (0.7, 1.3, 1.2), (1.0, 1.4, 1.25)]
)
def test_a_pass_yields_more_tokens_than_in_mlx_lm(
    pocket: Pair, temperature: float, block: float, keyed: float
) -> None:
    # A seed of its own for each chat: the keyed noise of one seed is the same in all of them.
    runs = [(chat, temperature, 1000 * n) for n, chat in enumerate(CHATS)]
    base = tokens_per_pass(stock(pocket, *run) for run in runs)
    print(f"\ntemperature {temperature}: mlx-lm {base:.2f}", end="")
    for rule, least in (("block", block), ("keyed", keyed)):
        got = tokens_per_pass(ours(pocket, *run, rule) for run in runs)
        print(f", {rule} {got:.2f} ({got / base:.2f}x)", end="")
        assert got >= least * base
    print()
