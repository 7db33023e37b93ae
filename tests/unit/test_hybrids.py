"""Models with stateful layers: rows taken back, replies equal to plain ones, checkpoints."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import mlx.core as mx
import pytest
from architectures import HYBRIDS
from replies import assert_like_fresh
from test_decoding import GREEDY, KEYED, PROMPT, session_of, stock_greedy, tokens_of
from tinymodels import VOCABULARY, tiny

from macspec import Session
from macspec.cache import PLAIN, ModelCache
from macspec.models import Pair
from macspec.models.rollback import recorder_of
from macspec.prompt import Prompt, Prompting
from macspec.recurrent import Tape
from macspec.rounds import Reply
from macspec.stats import ReplyCounter
from macspec.worker.engine import _info

SERIAL = {"qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_5-wide", "lfm2", "lfm2_moe", "olmo_hybrid"}
"""Whose passes of several rows compute what passes of one row do, to the bit."""

USUAL = ("qwen3_5",)
EVERY = (*HYBRIDS, "qwen3_5-wide", "qwen3_next", "mamba")
NAMES = [pytest.param(name, marks=() if name in USUAL else pytest.mark.slow) for name in EVERY]
TEXT = [3, 8, 1, 5, 13, 21, 34, 55, 2, 9]
ROWS = [17, 23, 42, 11, 30]


def fed(name: str, cache: ModelCache, tokens: list[int]) -> mx.array:
    """Logits of a pass of these rows."""
    cache.mark(len(tokens))
    with cache.recording(len(tokens)):
        logits: Any = tiny(name)(mx.array([tokens]), cache=cache.layers)[0]
    cache.advance(len(tokens))
    mx.eval(logits)
    return logits


def fresh(name: str, *, steps: int = 2, **how: Any) -> ModelCache:
    recorder = recorder_of(tiny(name), VOCABULARY)
    cache = ModelCache(tiny(name), recorder=recorder, steps=steps, **how)
    assert cache.reason is None
    fed(name, cache, TEXT)
    return cache


@pytest.mark.parametrize(("name", "how"), [("qwen3_5", "recorded"), ("llama", None)])
def test_a_session_says_how_rows_are_taken_back(pocket: Pair, name: str, how: str | None) -> None:
    assert _info(session_of(pocket, name)).rollback == how
    cache = ModelCache(tiny(name))
    assert cache.rollback_by == (how and f"off: {(cache.reason or '').removeprefix(PLAIN)}")


@pytest.mark.parametrize("name", NAMES)
def test_a_pass_goes_back_to_each_of_its_rows(name: str) -> None:
    for kept in range(len(ROWS) + 1):
        straight = fresh(name)
        if kept:
            fed(name, straight, ROWS[:kept])
        cache = fresh(name)
        fed(name, cache, ROWS)
        cache.rollback(len(TEXT) + kept)
        assert cache.length == len(TEXT) + kept
        for token in (4, 40, 14):
            a, b = fed(name, cache, [token]), fed(name, straight, [token])
            tolerance = 0.0 if name in SERIAL else 1e-5
            assert mx.abs(a - b).max().item() <= tolerance * max(1.0, mx.abs(b).max().item())


def test_a_full_accept_replays_nothing_and_leaves_no_tape(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed: list[int] = []
    monkeypatch.setattr(Tape, "replay", lambda tape, kept: replayed.append(kept))
    cache = fresh("qwen3_5")
    fed("qwen3_5", cache, ROWS)
    cache.rollback(len(TEXT) + len(ROWS))
    fed("qwen3_5", cache, [4])
    assert replayed == []
    assert [it.tape for it in cache._passes] == [None]
    fed("qwen3_5", cache, ROWS)
    cache.rollback(cache.length - 2)
    assert replayed == [3]


@pytest.mark.parametrize("name", NAMES)
def test_a_chain_of_single_rows_goes_back_step_by_step(name: str) -> None:
    straight = fresh(name)
    expected = [fed(name, straight, [token]) for token in ROWS]
    cache = fresh(name, steps=len(ROWS))
    for token in ROWS:
        fed(name, cache, [token])
    for back in reversed(range(len(ROWS))):
        cache.rollback(len(TEXT) + back)
        again = fed(name, cache, [ROWS[back]])
        assert mx.array_equal(again, expected[back]).item()
        cache.rollback(len(TEXT) + back)


@pytest.mark.parametrize(
    ("name", "depths"),
    [
        *((name, (1, 5)) for name in USUAL),
        *(pytest.param(name, range(1, 9), marks=pytest.mark.slow) for name in EVERY),
    ],
)
def test_replies_are_those_of_plain_decoding(
    pocket: Pair, name: str, depths: Sequence[int]
) -> None:
    count = 40
    plain = session_of(pocket, name, method="off", rule="keyed")
    accepted = 0
    for sampling in (GREEDY, KEYED):
        expected = tokens_of(plain, PROMPT, sampling, count)
        if sampling is GREEDY:
            assert expected == stock_greedy(name, PROMPT, count)
        for method, depth in (
            *(("draft", depth) for depth in depths),
            ("ngram", 3),
            ("suffix", 8),
        ):
            session = session_of(pocket, name, method=method, depth=depth, rule="keyed")
            assert tokens_of(session, PROMPT, sampling, count) == expected, (method, depth)
            assert_like_fresh(session)
            accepted += session.stats.accepted
    assert accepted > 20


@pytest.mark.parametrize("name", NAMES)
def test_method_and_depth_change_in_mid_reply(pocket: Pair, name: str) -> None:
    plain = session_of(pocket, name, method="off", rule="keyed")
    expected = tokens_of(plain, PROMPT, KEYED, 48)
    rng = random.Random(5)
    session = session_of(pocket, name, rule="keyed")
    text = " ".join(map(str, PROMPT))
    for _ in session.reply(text, KEYED, raw=True, max_tokens=48):
        if rng.random() < 0.4:
            session.method = rng.choice(["draft", "draft", "ngram", "suffix", "off", "auto"])
            session.depth = rng.choice(["auto", 0, 1, 2, 4, 8])
    assert session.finished is not None
    assert session.finished.token_ids == expected
    assert_like_fresh(session)


class Unheard:
    """A text stream that nobody reads."""

    part, stopped = "text", False

    def push(self, token: int, drafter: str | None) -> list[Any]:
        return []

    def finish(self) -> list[Any]:
        return []


FAR = ["qwen3_5", "nemotron_h", "lfm2", "gemma3_text", "recurrent_gemma"]


@pytest.mark.slow
@pytest.mark.parametrize("name", FAR)
def test_a_regenerated_reply_reads_only_what_follows_the_checkpoint(
    pocket: Pair, name: str
) -> None:
    rng = random.Random(1)
    prompt = [rng.randrange(VOCABULARY) for _ in range(1500)]
    session = session_of(pocket, name, method="ngram", depth=4)
    decoder = session.decoder
    session.sampling = GREEDY
    for turn, boundary in enumerate((1495, 1490)):
        count = 20 if turn else 700
        counter = ReplyCounter(len(prompt))
        reply = Reply(cast(Any, Unheard()), frozenset(), count, "length", 1, counter, 0.0)
        list(decoder.prefill(reply, list(prompt), (boundary,)))
        for _ in decoder.decode(reply):
            pass
        decoder.rollback(len(decoder.tokens))
        if turn:
            assert reply.counter.cached_tokens >= 1490
            assert tuple(reply.ids) == stock_greedy(name, prompt, 20)


WALKERS = ["qwen3_5", "nemotron_h", "falcon_h1", "lfm2", "recurrent_gemma", "gemma3_text"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "turns"),
    [("qwen3_5", 8), *(pytest.param(it, 150, marks=pytest.mark.slow) for it in WALKERS)],
)
def test_a_random_walk_gives_what_fresh_sessions_give(
    pocket: Pair, name: str, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk(pocket, name, turns, monkeypatch)


def walk(
    pocket: Pair, name: str, turns: int, monkeypatch: pytest.MonkeyPatch, **how: Any
) -> Session:
    """Edits, regenerates, closings and changes of method, each reply against a plain session."""
    rng = random.Random(turns)
    raw = Prompting.raw

    def with_boundaries(self: Prompting, messages: Any, context: int) -> Prompt:
        prompt = raw(self, messages, context)
        places = rng.sample(range(1, len(prompt.tokens)), 2)
        return replace(prompt, boundaries=tuple(sorted(places)))

    monkeypatch.setattr(Prompting, "raw", with_boundaries)
    session = session_of(pocket, name, rule="keyed", **how)
    plain = session_of(pocket, name, method="off", rule="keyed")
    model = "draft" if session.pair.head is None else session.pair.head.kind
    text, written = list(PROMPT), [1]
    for _ in range(turns):
        act = rng.choice(["go on", "go on", "edit", "again", "shorten"])
        if act == "go on":
            text += [*written, rng.randrange(VOCABULARY)]
        elif act == "edit":
            text[-rng.randint(1, min(9, len(text))) :] = [rng.randrange(VOCABULARY)] * 3
        elif act == "shorten" or len(text) > 300:
            text = text[: max(8, len(text) - rng.randint(1, 120))]
        sampling = rng.choice([GREEDY, replace(KEYED, seed=rng.randrange(99))])
        session.method = rng.choice(["auto", "draft", model, "ngram", "suffix", "off"])
        session.depth = rng.choice(["auto", 0, 1, 3, 8])
        count = rng.randint(1, 24)
        events = session.reply(" ".join(map(str, text)), sampling, raw=True, max_tokens=count)
        stop = rng.choice([None, None, rng.randint(1, 12)])
        for number, _ in enumerate(events):
            if number == stop:
                break
            if rng.random() < 0.1:
                session.method = rng.choice(["auto", model, "off"])
        events.close()
        assert session.finished is not None
        written = list(session.finished.token_ids) or [1]
        plain.forget()
        expected = tokens_of(plain, text, sampling, count)
        assert session.finished.token_ids == expected[: len(session.finished.token_ids)]
        assert_like_fresh(session)
    return session
