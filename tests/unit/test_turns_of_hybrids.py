"""What is read again in a later turn, with a chat template, by models that need checkpoints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from architectures import ARCHITECTURES
from replies import Rows, caches, finish
from tinymodels import TAGGED, built, saved

from macspec import Sampling, Session, load_pair
from macspec.text import common_prefix

THINKING = """\
{%- set asked = namespace(last=0) -%}
{%- for m in messages if m['role'] == 'user' %}{% set asked.last = messages.index(m) %}{% endfor -%}
{%- for m in messages -%}
<|{{ m['role'] }}|>
{% if m['role'] == 'assistant' -%}
{%- set parts = m['content'].split('</think>') -%}
{%- if loop.index0 > asked.last and parts | length > 1 -%}
<think>{{ parts[0].split('<think>')[-1] }}</think>{{ parts[-1] }}
{%- else -%}
{{ parts[-1].lstrip('\\n') }}
{%- endif -%}
{%- else -%}
{{ m['content'] }}
{%- endif -%}
<|end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|assistant|>
<think>
{% endif -%}
"""
"""As Qwen3.5's: a reply opens with reasoning, which is dropped once the user has answered."""

WINDOWED = ("gemma3_text", "gpt_oss")

NEAR = 4
"""Tokens that may differ between the messages to come and those that stood for them."""

DEPTH = 16
GREEDY = Sampling(temperature=0)
LONG = "A table for two at the window, tomorrow at seven, under the name of Miller. " * 96


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@pytest.fixture(params=["qwen3_5", *(pytest.param(it, marks=pytest.mark.slow) for it in WINDOWED)])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return saved(request.param, tmp_path / "model", THINKING)


def replied(session: Session, messages: list[dict[str, str]], count: int) -> tuple[Any, str]:
    """The end of a forced reply of so many tokens, and its text with the reasoning."""
    encode = session.pair.target.tokenizer.encode
    reasoning = encode("the window is free. " * 200, add_special_tokens=False)
    tail = encode("</think>\n\nIt is booked, see you at seven.", add_special_tokens=False)
    reasoning = reasoning[: count - len(tail)]
    last = finish(session, messages, GREEDY, forced=[*reasoning, *tail], max_tokens=count)
    return last, session.pair.target.tokenizer.decode(list(last.token_ids))


def read_again(session: Session, messages: list[dict[str, str]]) -> int:
    """The tokens cached at the beginning of a short reply; all others are read, and no more."""
    before, prompt = session.decoder.tokens, session._prompting.chat(messages, 4096, 1).tokens
    target = session.decoder.target
    target.module = counting = Rows(target.module)
    last = finish(session, messages, GREEDY, max_tokens=3)
    target.module = counting.module
    cached = last.stats.cached_tokens
    assert cached >= min(common_prefix(before, prompt), len(prompt) - 1) - NEAR
    assert sum(counting.seen) <= len(prompt) - cached + 3 * (1 + DEPTH)
    return cached


def test_only_what_follows_the_last_boundary_is_read_again(folder: Path) -> None:
    session = Session(load_pair(str(folder)), method="ngram", depth=DEPTH)
    history = [user(LONG), {"role": "assistant", "content": "Which table?"}]
    asked = [*history, user("The one at the window.")]
    first, text = replied(session, asked, 700)
    assert first.stats.prompt_tokens > 1500
    assert len(first.token_ids) == 700
    thanks = [*asked, {"role": "assistant", "content": text}, user("Thank you.")]
    for messages in (
        thanks,  # without the reasoning of the reply before
        thanks,  # regenerated
        [*thanks[:-1], user("No, another one.")],
        [*history, user("The one at the door.")],
    ):
        assert read_again(session, messages) >= 1490
    _, text = replied(session, asked, 700)
    assert read_again(session, asked) >= 1490
    assert read_again(session, [*history, user("The one at the door.")]) >= 1490


@pytest.mark.parametrize("draft", ["qwen3_5", pytest.param("gemma3_text", marks=pytest.mark.slow)])
def test_a_draft_model_goes_back_to_a_checkpoint_too(draft: str, tmp_path: Path) -> None:
    pair = load_pair(str(saved("llama", tmp_path / "model", THINKING)))
    pair = replace(
        pair,
        draft=replace(pair.target, module=built({**ARCHITECTURES[draft], "vocab_size": TAGGED})),
    )
    session = Session(pair, method="draft", depth=4)
    history = [user(LONG), {"role": "assistant", "content": "Which table?"}]
    finish(session, [*history, user("The one at the window.")], GREEDY, max_tokens=60)
    model = caches(session)["draft"]
    read = model.length
    model.module = counting = Rows(model.module)
    finish(session, [*history, user("The one at the door.")], GREEDY, max_tokens=3)
    assert sum(counting.seen) < 60 < 1500 < read
