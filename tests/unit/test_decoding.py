"""The loop over every kind of cache, with tiny random models."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replies import Rows, assert_like_fresh, caches, finish
from tinymodels import VOCABULARY, noisy, tiny

from macspec import Notice, Round, Sampling, Session
from macspec.control import Offer
from macspec.drafters import NGram
from macspec.errors import BadOptionError
from macspec.heads import LoadedHead
from macspec.models import Pair, cached
from macspec.models.cached import PASS_TAIL

WINDOWED = ["llama", "llama-sliding", "gemma3_text", "gpt_oss", "llama4"]
RECURRENT = ["mamba", "qwen3_next"]
GREEDY = Sampling(temperature=0)
KEYED = Sampling(temperature=0.8, seed=9)
PROMPT = [7 + (5 * i) % 40 for i in range(21)]


@cache
def disturbed(name: str) -> Any:
    return noisy(tiny(name))


class Ids:
    """A template for prompts that are ids already."""

    notices: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()

    def __init__(self, format: Any) -> None:
        self.format = format

    def raw(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]


def session_of(
    pair: Pair,
    name: str,
    draft: str | None = None,
    head: LoadedHead | None = None,
    **options: Any,
) -> Session:
    """A session over tiny models; prompts are ids, written as numbers."""
    assert pair.draft is not None
    small = replace(
        pair,
        target=replace(pair.target, module=tiny(name), width=VOCABULARY),
        draft=replace(pair.draft, module=disturbed(draft or name), width=VOCABULARY, context=4096),
        vocabulary=VOCABULARY,
        context=4096,
        stop_ids=frozenset(),
        head=head,
    )
    session = Session(small, **options)
    session._prompting._templates[None] = Ids(session._prompting.format)  # type: ignore[assignment]
    return session


def tokens_of(
    session: Session, prompt: list[int], sampling: Sampling, count: int
) -> tuple[int, ...]:
    text = " ".join(map(str, prompt))
    return finish(session, text, sampling, raw=True, max_tokens=count).token_ids


def stock_greedy(name: str, prompt: list[int], count: int) -> tuple[int, ...]:
    """One token after the other through mlx-lm's own model and caches."""
    from mlx_lm.generate import generate_step

    steps = generate_step(mx.array(prompt), tiny(name), max_tokens=count)
    return tuple(int(token) for token, _ in steps)


@pytest.mark.parametrize("name", WINDOWED)
def test_every_kind_of_cache_gives_the_text_of_stock_mlx_lm(pocket: Pair, name: str) -> None:
    count = 40
    expected = stock_greedy(name, PROMPT, count)
    assert tokens_of(session_of(pocket, name, method="off"), PROMPT, GREEDY, count) == expected
    accepted = 0
    for method, depth in (("draft", 1), ("draft", 8), ("ngram", 3)):
        session = session_of(pocket, name, method=method, depth=depth)
        assert tokens_of(session, PROMPT, GREEDY, count) == expected
        assert_like_fresh(session)
        accepted += session.stats.accepted
    assert accepted > 12


@pytest.mark.parametrize("name", WINDOWED)
def test_rounds_of_one_and_of_many_rows_mix(pocket: Pair, name: str) -> None:
    for number, sampling in enumerate((GREEDY, KEYED)):
        plain = session_of(pocket, name, method="off", rule="keyed")
        expected = tokens_of(plain, PROMPT, sampling, 32)
        rng = random.Random(number)
        session = session_of(pocket, name, rule="keyed")
        text = " ".join(map(str, PROMPT))
        for event in session.reply(text, sampling, raw=True, max_tokens=32):
            if isinstance(event, Round):
                for model in caches(session).values():
                    assert model.length <= len(session.decoder.tokens) + 33
                session.method = rng.choice(["draft", "draft", "ngram", "off"])
                session.depth = rng.choice([0, 1, 2, 4, 7, 12])
        assert session.finished is not None
        assert session.finished.token_ids == expected
        assert_like_fresh(session)


@pytest.mark.parametrize(("target", "draft"), [("llama", "gemma3_text"), ("gpt_oss", "llama")])
def test_target_and_draft_may_be_of_different_kinds(pocket: Pair, target: str, draft: str) -> None:
    expected = stock_greedy(target, PROMPT, 48)
    session = session_of(pocket, target, draft, method="draft", depth=4)
    assert tokens_of(session, PROMPT, GREEDY, 48) == expected
    assert_like_fresh(session)


def test_a_quantized_cache_gives_the_text_of_a_plain_run_with_it(pocket: Pair) -> None:
    for bits in (4, 8):
        plain = session_of(pocket, "llama-wide", "llama", method="off", kv_bits=bits)
        expected = tokens_of(plain, PROMPT, GREEDY, 40)
        session = session_of(pocket, "llama-wide", "llama", method="draft", depth=4, kv_bits=bits)
        assert tokens_of(session, PROMPT, GREEDY, 40) == expected
        assert_like_fresh(session)


@pytest.mark.parametrize("name", RECURRENT)
def test_a_target_that_cannot_go_back_runs_plain_and_says_why(
    pocket: Pair, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached, "recorder_of", lambda *_: None)
    session = session_of(pocket, name, "llama", method="draft", depth=4)
    expected = stock_greedy(name, PROMPT, 24)
    text = " ".join(map(str, PROMPT))
    events = list(session.reply(text, GREEDY, raw=True, max_tokens=24))
    assert session.finished is not None
    assert session.finished.token_ids == expected
    assert session.finished.stats.drafted == 0
    said = [event.message for event in events if hasattr(event, "message")]
    assert len(said) == 1
    assert "plain" in said[0]

    for stop_at in range(1, 9, 3):
        reply = session.reply(text, GREEDY, raw=True, max_tokens=24)
        for number, _ in enumerate(reply):
            if number == stop_at:
                break
        reply.close()
        assert tokens_of(session, PROMPT, GREEDY, 24) == expected
        longer = [*PROMPT, *expected, 5]
        assert tokens_of(session, longer, GREEDY, 8) == stock_greedy(name, longer, 8)


def test_an_edit_older_than_the_window_is_read_again(pocket: Pair) -> None:
    session = session_of(pocket, "gemma3_text", method="draft", depth=3)
    long = [7 + (3 * i) % 50 for i in range(900)]
    tokens_of(session, long, GREEDY, 8)
    edited = [*long[:20], 9, *long[21:60]]
    assert tokens_of(session, edited, GREEDY, 24) == stock_greedy("gemma3_text", edited, 24)
    assert session.finished is not None
    assert session.finished.stats.cached_tokens == 0
    assert_like_fresh(session)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["draft", "draft", "ngram", "off", "auto"]),
        st.integers(0, 9),
        st.sampled_from(["block", "keyed", "match"]),
    ),
    min_size=1,
    max_size=5,
)


def random_walk(pocket: Pair, name: str, prompt_length: int, steps: Any, stop_at: int) -> None:
    """Random settings, an interrupt anywhere, and everything that must hold at each event."""
    session = session_of(pocket, name, rule="keyed")
    models = caches(session)
    for model in models.values():
        model.module = Rows(model.module)
    prompt = [(11 * i) % VOCABULARY for i in range(prompt_length)]
    text = " ".join(map(str, prompt))
    reply = session.reply(text, KEYED, raw=True, max_tokens=40)
    decoder = session.decoder
    for number, event in enumerate(reply):
        if isinstance(event, Round):
            method, depth, rule = steps[number % len(steps)]
            session.method, session.depth, session.rule = method, depth, rule
        if number == stop_at:
            break
    reply.close()
    assert models["draft"].length <= len(decoder.tokens)
    assert models["target"].length <= len(decoder.tokens)
    for model in models.values():
        assert max(model.module.seen, default=0) <= decoder.chunk.rows
        model.module = model.module.module
    assert_like_fresh(session)
    plain = session_of(pocket, name, method="off")
    assert tokens_of(session, prompt, GREEDY, 20) == tokens_of(plain, prompt, GREEDY, 20)


@settings(max_examples=5, deadline=None)
@given(
    name=st.sampled_from(["llama", "gemma3_text", "gpt_oss"]),
    prompt_length=st.integers(1, 3 * PASS_TAIL),
    steps=STEPS,
    stop_at=st.integers(0, 60),
)
def test_invariants_at_any_interrupt(
    pocket: Pair, name: str, prompt_length: int, steps: Any, stop_at: int
) -> None:
    random_walk(pocket, name, prompt_length, steps, stop_at)


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    name=st.sampled_from(WINDOWED),
    prompt_length=st.one_of(st.integers(1, 60), st.integers(500, 1100)),
    steps=STEPS,
    stop_at=st.integers(0, 120),
)
def test_invariants_at_any_interrupt_often(
    pocket: Pair, name: str, prompt_length: int, steps: Any, stop_at: int
) -> None:
    random_walk(pocket, name, prompt_length, steps, stop_at)


class Liar:
    """A drafter that proposes random tokens."""

    name = "ngram"

    def __init__(self) -> None:
        self.rng = random.Random(1)

    def offer(self, tokens: Any) -> Offer:
        return Offer(self.name, 32, 0)

    def observe(self, committed: Any, drafted: int, accepted: int) -> None:
        pass

    def propose(self, context: Any, depth: int) -> Any:
        from macspec.drafters import Proposal

        count = self.rng.randint(0, depth)
        if count == 0:
            return None
        return Proposal(mx.array([self.rng.randrange(VOCABULARY) for _ in range(count)], mx.uint32))

    def rollback(self, length: int) -> None:
        pass


@pytest.mark.parametrize("sampling", [GREEDY, KEYED])
@pytest.mark.parametrize("rule", ["block", "keyed", "match"])
def test_a_drafter_that_proposes_anything_changes_nothing(
    pocket: Pair, sampling: Sampling, rule: str
) -> None:
    plain = session_of(pocket, "gemma3_text", method="off")
    expected = tokens_of(plain, PROMPT, sampling, 50)
    session = session_of(pocket, "gemma3_text", method="ngram", depth=6, rule=rule)
    session.decoder.portfolio.drafters["ngram"] = Liar()
    assert tokens_of(session, PROMPT, sampling, 50) == expected
    assert session.stats.drafted > 50


def test_the_lookup_window_and_copy_length_are_options(pocket: Pair) -> None:
    repeating = [5, 6, 7, 8] * 6
    session = session_of(
        pocket, "llama", method="ngram", depth=8, ngram=NGram(shortest=1, longest=2, copy=3)
    )
    text = " ".join(map(str, repeating))
    rounds = [
        e for e in session.reply(text, GREEDY, raw=True, max_tokens=30) if isinstance(e, Round)
    ]
    assert rounds[0].drafted == 3
    assert max(event.drafted for event in rounds) == 3


def test_a_draft_model_that_cannot_go_back_is_off_and_says_why(
    pocket: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached, "recorder_of", lambda *_: None)
    session = session_of(pocket, "llama", "mamba", depth=4)
    text = " ".join(map(str, PROMPT))
    events = list(session.reply(text, GREEDY, raw=True, max_tokens=24))
    assert session.finished is not None
    assert session.finished.token_ids == stock_greedy("llama", PROMPT, 24)
    assert [e.message for e in events if isinstance(e, Notice) and "draft model" in e.message]
    assert {e.drafter for e in events if isinstance(e, Round)} <= {"ngram", "suffix", None}
    with pytest.raises(BadOptionError, match=r"is off: .* running state"):
        session.method = "draft"
