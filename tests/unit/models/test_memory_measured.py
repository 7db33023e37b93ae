"""The plan against the memory that MLX says was in use while a reply filled the context."""

from __future__ import annotations

import gc

import mlx.core as mx
import pytest
from modelfolders import shared_model

from macspec import Sampling, Session, load_pair

ROOM = 4
"""Positions left for the reply."""


def shipped() -> tuple[None, None]:
    return None, None


def small_chat() -> tuple[str, str]:
    return shared_model("chat-8.7M"), shared_model("chat-draft-0.6M")


@pytest.mark.parametrize("names", [shipped, small_chat])
@pytest.mark.parametrize("context", [512, pytest.param(None, marks=pytest.mark.slow)])
def test_the_plan_agrees_with_what_is_measured(names, context):
    gc.collect()
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    pair = load_pair(*names(), context=context)
    assert pair.draft is not None
    held = mx.get_active_memory() - before
    assert held == pytest.approx(pair.plan.weights, rel=0.001)
    session = Session(pair, method="draft", depth=4)
    tokenizer = pair.target.tokenizer
    words = tokenizer.encode("The cat sat on a mat. " * pair.context, add_special_tokens=False)
    text = tokenizer.decode(words[: pair.context - ROOM])
    for _ in session.reply(text, Sampling(temperature=0.7, seed=1), raw=True):
        pass
    peak = mx.get_peak_memory() - before
    rest = mx.get_active_memory() - before
    assert rest == pytest.approx(pair.plan.weights + pair.plan.caches, rel=0.01)
    assert peak == pytest.approx(pair.plan.total, rel=0.05)
