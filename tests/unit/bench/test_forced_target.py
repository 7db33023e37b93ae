"""mlx-lm's own loops led along a recorded answer: exactly it comes out, at any temperature."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_sampler
from tinymodels import VOCABULARY, tiny

from macspec.bench.mlxlm import ForcedTarget
from macspec.bench.questions import answer_ids
from macspec.bench.tasks import Task
from macspec.errors import BadOptionError
from macspec.models import Pair

PROMPT = [5, 7, 11, 13, 17, 19, 23]
ANSWER = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]


def forced(name: str = "llama") -> ForcedTarget:
    return ForcedTarget(tiny(name), len(PROMPT), ANSWER)


@pytest.mark.parametrize("temperature", [0.0, 0.8, 5.0])
@pytest.mark.parametrize("chunk", [1, 3, 512])
def test_the_plain_loop(temperature: float, chunk: int) -> None:
    steps = generate_step(
        mx.array(PROMPT),
        forced(),
        max_tokens=len(ANSWER),
        sampler=make_sampler(temperature),
        prefill_step_size=chunk,
    )
    assert [int(token) for token, _ in steps] == ANSWER


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("depth", [1, 4, 8])
def test_the_speculative_loop(temperature: float, depth: int) -> None:
    steps = speculative_generate_step(
        mx.array(PROMPT),
        forced(),
        tiny("llama-wide"),
        num_draft_tokens=depth,
        max_tokens=len(ANSWER),
        sampler=make_sampler(temperature),
    )
    assert [int(token) for token, *_ in steps] == ANSWER


def test_a_draft_that_knows_the_answer_is_accepted() -> None:
    steps = speculative_generate_step(
        mx.array(PROMPT), forced(), forced(), num_draft_tokens=3, max_tokens=len(ANSWER)
    )
    assert [bool(drafted) for *_, drafted in steps] == [True, True, True, False] * 4


def test_before_and_beyond_the_answer_the_model_is_as_it_is() -> None:
    module: Any = tiny("llama")
    tokens = mx.array([PROMPT + ANSWER + [1, 2]])
    changed = forced()(tokens, cache=_new())
    plain = module(tokens, cache=_new())
    differ = mx.abs(changed - plain).max(axis=-1)[0] > 1
    first = len(PROMPT) - 1
    assert differ.tolist() == [first <= row < first + len(ANSWER) for row in range(tokens.shape[1])]
    assert changed.shape == (1, tokens.shape[1], VOCABULARY)
    assert mx.argmax(changed[0, first : first + len(ANSWER)], axis=-1).tolist() == ANSWER


@pytest.mark.parametrize("name", ["llama-sliding", "mamba", "qwen3_next", "llama4"])
def test_other_caches_are_counted_as_well(name: str) -> None:
    steps = generate_step(
        mx.array(PROMPT), forced(name), max_tokens=len(ANSWER), prefill_step_size=3
    )
    assert [int(token) for token, _ in steps] == ANSWER


def _new() -> list[Any]:
    return list(make_prompt_cache(tiny("llama")))


def test_what_of_an_answer_can_be_forced(pocket: Pair) -> None:
    def task(answer: str | None, limit: int = 99) -> Task:
        return Task("x", "w", ({"role": "user", "content": "a"},), limit, forced=answer)

    tokenizer: Any = pocket.target.tokenizer
    assert answer_ids(task(None), pocket) is None
    ids = answer_ids(task("Hello there<|end|>, you"), pocket)
    assert ids is not None
    assert pocket.stop_ids.isdisjoint(ids)
    assert "Hello there" in tokenizer.decode(ids)
    assert answer_ids(task("Hello there", 1), pocket) == ids[:1]
    with pytest.raises(BadOptionError, match="vocabulary"):
        answer_ids(task("<|end|>"), pocket)
