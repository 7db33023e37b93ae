"""Ending a reply before it is over costs nothing that was emitted, and nothing of the next one."""

from __future__ import annotations

import gc
from typing import Any

import mlx.core as mx
import pytest
from replies import assert_like_fresh, caches, finish

from macspec import Round, Sampling, Session, Text
from macspec.models import Pair

GREEDY = Sampling(temperature=0)
HELLO = [{"role": "user", "content": "I need a hotel in London for three nights."}]


@pytest.mark.parametrize("method", ["off", "draft", pytest.param("ngram", marks=pytest.mark.slow)])
def test_closing_at_any_event_leaves_the_session_usable(small: Pair, method: str) -> None:
    whole = finish(Session(small, method="off"), HELLO, GREEDY, max_tokens=6)
    count = len(list(Session(small, method=method, depth=3).reply(HELLO, GREEDY, max_tokens=6)))
    session = Session(small, method=method, depth=3)
    for stop_at in range(count):
        shown = ""
        events = session.reply(HELLO, GREEDY, max_tokens=6)
        for number, event in enumerate(events):
            shown += event.delta if isinstance(event, Text) else ""
            if number == stop_at:
                break
        events.close()
        assert session.finished is not None
        assert session.finished.text.startswith(shown)
        assert whole.token_ids[: len(session.finished.token_ids)] == session.finished.token_ids
        assert session.finished.reason in ("interrupted", whole.reason)
        assert_like_fresh(session)
    assert finish(session, HELLO, GREEDY, max_tokens=6).token_ids == whole.token_ids


def test_an_abandoned_reply_is_closed(small: Pair) -> None:
    session = Session(small)
    for event in session.reply(HELLO, GREEDY):
        if isinstance(event, Round):
            break
    del event
    gc.collect()
    assert session.finished is not None
    assert session.finished.reason == "interrupted"
    open_one = session.reply(HELLO, GREEDY)
    next(open_one)
    finish(session, HELLO, GREEDY, max_tokens=4)
    assert list(open_one) == []


class BrokenPassError(Exception):
    """Stands for anything that can go wrong inside a model."""


@pytest.mark.parametrize("which", ["target", "draft"])
def test_an_error_in_the_middle_of_a_pass_costs_nothing(
    pocket: Pair, small: Pair, which: str
) -> None:
    pair = pocket if which == "target" else small  # The small one's target has a single layer.
    whole = finish(Session(pair, method="off"), HELLO, GREEDY, max_tokens=6)
    for at_call in range(1, 4):
        session = Session(pair, method="draft", depth=2)
        model = caches(session)[which]
        module, calls = model.module, 0

        def breaking(tokens: mx.array, cache: Any, module: Any = module, at: int = at_call) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                # One layer has taken the rows in, the others have not.
                attention = module.layers[0].self_attn
                width = attention.rope.dims
                rows = mx.zeros((1, attention.n_kv_heads, tokens.shape[1], width))
                cache[0].update_and_fetch(rows, rows)
                raise BrokenPassError
            return module(tokens, cache=cache)

        model.module = breaking
        with pytest.raises(BrokenPassError):
            finish(session, HELLO, GREEDY, max_tokens=6)
        model.module = module
        assert_like_fresh(session)
        assert finish(session, HELLO, GREEDY, max_tokens=6).token_ids == whole.token_ids
