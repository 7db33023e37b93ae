"""A conversation: what is reused, where it ends, and what an interrupt leaves behind."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from replies import Rows, assert_like_fresh, caches, finish, prompt_tokens

from macspec import Notice, Prefilled, Round, Sampling, Session, Text
from macspec.control import Controller
from macspec.drafters import Corpus
from macspec.errors import BadOptionError, ContextOverflowError
from macspec.events import Emitted, Prefilling
from macspec.models import Pair
from macspec.models.absorbed import Absorbed
from macspec.models.cached import PASS_TAIL

GREEDY = Sampling(temperature=0)
HELLO = [{"role": "user", "content": "I need a hotel in London for three nights."}]


def counted(session: Session) -> dict[str, Rows]:
    counters = {}
    for name, model in caches(session).items():
        model.module = counters[name] = Rows(model.module)
    return counters


def say(session: Session, messages: list[dict[str, str]], text: str, **options: Any) -> None:
    """One more turn of a conversation, in place."""
    messages.append({"role": "user", "content": text})
    reply = finish(session, messages, GREEDY, **options)
    messages.append({"role": "assistant", "content": reply.text})


def test_a_later_turn_prefills_only_what_is_new(small: Pair) -> None:
    session = Session(small, method="draft", depth=3)
    counters = counted(session)
    messages: list[dict[str, str]] = []
    turns = ["Hello, how are you?", "I need a hotel.", "In London.", "Three nights.", "Thanks."]
    for text in turns:
        before = len(session.decoder.tokens)
        for counter in counters.values():
            counter.seen.clear()
        say(session, messages, text, max_tokens=24)
        prompt = prompt_tokens(small, messages[:-1])
        finished = session.finished
        assert finished is not None
        new = len(prompt) - finished.stats.cached_tokens
        # The end-of-turn token and what the template puts between turns are all there is to add.
        assert finished.stats.cached_tokens >= before - 1
        passes = finished.stats.passes
        drafted_rows = finished.stats.drafted
        emitted = finished.stats.tokens
        assert sum(counters["target"].seen) <= new + 4 * passes
        assert sum(counters["draft"].seen) <= new + emitted + drafted_rows + passes
    assert session.stats.replies == len(turns)


def test_an_edited_message_keeps_the_common_prefix(small: Pair) -> None:
    session = Session(small, method="draft", depth=4)
    messages: list[dict[str, str]] = []
    for text in ("I need a hotel in London.", "Three nights.", "Yes, book it."):
        say(session, messages, text, max_tokens=16)
    edited = [*messages[:2], {"role": "user", "content": "Only two nights, please."}]
    prompt = prompt_tokens(small, edited)
    shared = len(prompt_tokens(small, messages[:2])) - 1
    got = finish(session, edited, GREEDY, max_tokens=16)
    assert shared <= got.stats.cached_tokens < len(prompt)
    assert got.token_ids == finish(Session(small), edited, GREEDY, max_tokens=16).token_ids
    assert_like_fresh(session)


@pytest.mark.parametrize(
    "depth", [0, 4, *(pytest.param(it, marks=pytest.mark.slow) for it in (1, 8))]
)
def test_the_end_token_can_fall_anywhere_in_a_block(small: Pair, depth: int) -> None:
    whole = finish(Session(small, method="off"), HELLO, GREEDY, max_tokens=12).token_ids
    for end in whole[: depth + 2]:
        pair = replace(small, stop_ids=frozenset({end}))
        session = Session(pair, method="draft", depth=depth)
        events = list(session.reply(HELLO, GREEDY, max_tokens=12))
        first = whole.index(end)
        finished = session.finished
        assert finished is not None
        assert finished.reason == "end"
        assert finished.token_ids == whole[: first + 1]
        told = [token.id for event in events if isinstance(event, Text) for token in event.tokens]
        assert tuple(told) == finished.token_ids
        assert finished.stats.tokens == first + 1
        assert session.decoder.tokens[-first - 1 :] == list(whole[: first + 1])
        assert_like_fresh(session)


@pytest.mark.parametrize("depth", [0, 4])
def test_stop_strings_end_a_reply_before_them(small: Pair, depth: int) -> None:
    text = finish(Session(small, method="off"), HELLO, GREEDY, max_tokens=16).text
    session = Session(small, method="draft", depth=depth)
    for start in range(1, len(text) - 4, 9):
        stop = text[start : start + 4]
        pieces = []
        for event in session.reply(HELLO, GREEDY, max_tokens=16, stop=[stop]):
            if isinstance(event, Text):
                pieces.append(event.delta)
        assert session.finished is not None
        assert session.finished.reason == "stop"
        assert "".join(pieces) == session.finished.text == text[: text.index(stop)]
        assert_like_fresh(session)


@pytest.mark.parametrize("depth", [0, 5])
def test_max_tokens_is_exact(small: Pair, depth: int) -> None:
    pair = replace(small, stop_ids=frozenset())
    whole = finish(Session(pair, method="off"), HELLO, GREEDY, max_tokens=8).token_ids
    session = Session(pair, method="draft", depth=depth)
    for limit in range(1, 9):
        got = finish(session, HELLO, GREEDY, max_tokens=limit)
        assert (got.token_ids, got.reason) == (whole[:limit], "length")


@pytest.mark.parametrize("method", ["off", "draft"])
def test_the_context_fills_to_the_last_position(small: Pair, method: str) -> None:
    prompt = len(prompt_tokens(small, HELLO))
    pair = replace(small, stop_ids=frozenset(), context=prompt + 19)
    session = Session(pair, method=method, depth=5)
    got = finish(session, HELLO, GREEDY, on_overflow="refuse")
    assert (got.reason, len(got.token_ids)) == ("context", 19)
    assert len(session.decoder.tokens) == pair.context


def test_a_draft_with_a_shorter_context_stops_at_its_limit(small: Pair) -> None:
    assert small.draft is not None
    prompt = len(prompt_tokens(small, HELLO))
    pair = replace(small, stop_ids=frozenset(), draft=replace(small.draft, context=prompt + 10))
    for method, then in (("draft", {None}), ("auto", {"ngram", "suffix", None})):
        session = Session(pair, method=method, depth=4)
        events = list(session.reply(HELLO, GREEDY, max_tokens=40))
        rounds = [event for event in events if isinstance(event, Round)]
        said = [event.message for event in events if isinstance(event, Notice)]
        assert len(said) == 1
        assert f"context of {prompt + 10} tokens is full" in said[0]
        assert rounds[0].drafter == "draft"
        assert {event.drafter for event in rounds[-4:]} <= then
        assert caches(session)["draft"].length <= prompt + 10
        whole = finish(Session(pair, method="off"), HELLO, GREEDY, max_tokens=40).token_ids
        assert session.finished is not None
        assert session.finished.token_ids == whole


def test_a_history_beyond_the_context_drops_its_oldest_turns(small: Pair) -> None:
    session = Session(small)
    messages = [{"role": "system", "content": "Be brief."}]
    for number in range(40):
        messages.append({"role": "user", "content": f"A table for {number} people, please."})
        messages.append({"role": "assistant", "content": "Which city do you want to eat in?"})
    messages.append({"role": "user", "content": "In London."})
    events = list(session.reply(messages, GREEDY, max_tokens=16))
    notices = [event.message for event in events if isinstance(event, Notice)]
    assert any("oldest" in notice and "left out" in notice for notice in notices)
    (prefilled,) = [event for event in events if isinstance(event, Prefilled)]
    dropped, finished = prefilled.dropped_messages, session.finished
    assert dropped > 0
    assert finished is not None
    assert finished.stats.dropped_messages == dropped
    assert finished.stats.prompt_tokens + 16 <= small.context
    kept = [messages[0], *messages[1 + dropped :]]
    assert kept[1]["role"] == "user"
    assert session.decoder.tokens[: prefilled.prompt_tokens] == prompt_tokens(small, kept)
    with pytest.raises(ContextOverflowError, match=rf"\d+ tokens.*{small.context}"):
        session.reply(messages, GREEDY, on_overflow="refuse")


def test_a_prompt_is_counted_before_it_is_sent(small: Pair) -> None:
    session = Session(small)
    before = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello!"}]
    messages = [{"role": "system", "content": "Be brief."}, *before, *HELLO]
    message, whole, least = session.count_tokens(messages)
    assert whole == len(prompt_tokens(small, messages))
    assert least == len(prompt_tokens(small, [messages[0], *HELLO]))
    assert message < least < whole
    with pytest.raises(BadOptionError, match="prompt is empty"):
        session.count_tokens("")


def test_one_turn_longer_than_the_context_is_refused(small: Pair) -> None:
    with pytest.raises(ContextOverflowError, match=str(small.context)):
        Session(small).reply("hotel " * 600)


@pytest.mark.parametrize("gains", [True, False])
def test_the_draft_model_reads_the_prompt_first_if_the_reply_should_gain(
    small: Pair, monkeypatch: pytest.MonkeyPatch, gains: bool
) -> None:
    monkeypatch.setattr(Controller, "reader", lambda *_, **__: "draft" if gains else None)
    session = Session(small)
    draft = caches(session)["draft"]
    chunks = 0
    for event in session.reply("a hotel in London and " * 20, GREEDY, raw=True, max_tokens=2):
        if isinstance(event, Prefilling):
            chunks += 1
            assert draft.length == (event.done if gains else 0)
    assert chunks > 0
    off = Session(small, method="off")
    finish(off, HELLO, GREEDY, max_tokens=2)
    assert caches(off)["draft"].length == 0


def test_slow_verify_passes_are_noticed_once(small: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(small)
    latent = Absorbed(small.target.module)
    latent.reason = "its passes are slow"
    monkeypatch.setattr(session.decoder.target, "absorbed", latent)
    for expected in ([latent.reason], []):
        events = session.reply(HELLO, GREEDY, max_tokens=1)
        assert [event.message for event in events if isinstance(event, Notice)] == expected


def test_a_draft_step_costs_what_it_reads_until_measured(small: Pair) -> None:
    assert small.draft is not None
    sizes = {"target": 10**9, "draft": 3 * 10**8}
    models = {
        role: replace(model, estimate=replace(model.estimate, active=sizes[role]))
        for role, model in (("target", small.target), ("draft", small.draft))
    }
    session = Session(replace(small, **models))
    assert session.controller.curve.step("draft") == pytest.approx(0.32)


def test_costs_are_measured_in_wired_memory(small: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(small)
    finish(session, HELLO, GREEDY, max_tokens=4)
    wired: list[bool] = []
    seen: list[bool] = []

    @contextmanager
    def wiring() -> Iterator[None]:
        wired.append(True)
        yield
        wired.pop()

    monkeypatch.setattr("macspec.session.wired", wiring)
    original = type(session.decoder.target).logits

    def watched(model: Any, *args: Any) -> Any:
        seen.append(bool(wired))
        return original(model, *args)

    monkeypatch.setattr(type(session.decoder.target), "logits", watched)
    for _, _ in zip(range(5), session.measure(), strict=False):
        assert not wired
    assert seen
    assert all(seen)


@pytest.mark.parametrize(("seconds", "rows"), [(0.01, [20, 40, 80]), (3.0, [20] * 3)])
def test_prefill_passes_grow_as_far_as_they_are_quick(
    small: Pair, seconds: float, rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += seconds
        return now[0]

    monkeypatch.setattr("macspec.models.prefill.PREFILL_CHUNK", rows[0])
    session = Session(replace(small, plan=replace(small.plan, chunk=80)), clock=clock)
    counter = counted(session)["target"]
    finish(session, "a hotel in London and " * 35, GREEDY, raw=True, max_tokens=2)
    assert counter.seen[:3] == rows


def test_a_long_prompt_is_prefilled_in_chunks(small: Pair) -> None:
    chunk = 2 * PASS_TAIL
    session = Session(small, method="draft", depth=2)
    session.decoder.chunk.most = chunk
    counters = counted(session)
    text = "a hotel in London and " * 40
    events = list(session.reply(text, GREEDY, raw=True, max_tokens=8))
    progress = [event for event in events if isinstance(event, Prefilling)]
    assert [event.done for event in progress] == sorted({event.done for event in progress})
    assert len(progress) > 1
    assert max(counters["target"].seen) <= chunk
    assert max(counters["draft"].seen) <= chunk
    assert isinstance(events[len(progress)], Prefilled)
    assert_like_fresh(session)


def test_a_change_does_not_wait_for_a_choice_that_holds(small: Pair) -> None:
    session = Session(small, method="off")
    depths = []
    for event in session.reply(HELLO, GREEDY, max_tokens=32):
        if isinstance(event, Round):
            depths.append(event.depth)
            if len(depths) == 4:
                session.controller.resting = 1000
                session.method, session.depth = "draft", 3
    assert depths[:5] == [0, 0, 0, 0, 3]


def test_changes_take_effect_at_the_next_round(small: Pair) -> None:
    session = Session(small, method="draft", depth=2)
    pair_rounds: list[tuple[int, int]] = []
    asked = 2
    rng = random.Random(3)
    for event in session.reply(HELLO, GREEDY, max_tokens=48):
        if isinstance(event, Round):
            pair_rounds.append((asked, event.depth))
            asked = rng.choice([0, 1, 2, 3, 5])
            session.depth = asked
    assert len(pair_rounds) > 5
    assert all(depth == wanted for wanted, depth in pair_rounds[:-3])


def test_who_wrote_each_token(small: Pair) -> None:
    session = Session(small, method="draft", depth=4)
    rounds, tokens = [], []
    for event in session.reply(HELLO, GREEDY, max_tokens=32):
        if isinstance(event, Round):
            rounds.append(event)
        elif isinstance(event, Text):
            tokens.append(event.tokens)
    assert len(rounds) == len(tokens)
    for told, emitted in zip(rounds, tokens, strict=True):
        drafted = [token for token in emitted if token.drafter == "draft"]
        assert len(drafted) == told.accepted
        assert [token.id for token in emitted] == list(told.tokens)
        assert all(isinstance(token, Emitted) for token in emitted)
    stats = session.finished.stats if session.finished else None
    assert stats is not None
    assert stats.accepted == sum(told.accepted for told in rounds)
    assert stats.drafted == sum(told.drafted for told in rounds)
    assert stats.passes == len(rounds)


@contextmanager
def synchronisations() -> Iterator[list[str]]:
    """Every call that waits for the device, by name."""
    calls: list[str] = []
    kept: list[tuple[Any, str, Any]] = []

    def watch(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return original(*args, **kwargs)

        kept.append((owner, name, original))
        setattr(owner, name, counting)

    for name in ("tolist", "item", "__bool__", "__int__", "__float__", "__array__", "__index__"):
        if hasattr(mx.array, name):
            watch(mx.array, name)
    for name in ("eval", "synchronize"):
        watch(mx, name)
    try:
        yield calls
    finally:
        for owner, name, original in kept:
            setattr(owner, name, original)


@pytest.mark.parametrize("method", ["off", "draft", "ngram"])
@pytest.mark.parametrize(
    ("temperature", "rule"), [(0.0, "block"), (0.8, "block"), (0.8, "keyed"), (0.8, "match")]
)
def test_a_round_waits_for_the_device_once(
    small: Pair, method: str, temperature: float, rule: str
) -> None:
    session = Session(small, method=method, depth=3, rule=rule)
    sampling = Sampling(temperature=temperature, seed=1, top_p=0.95, top_k=100)
    finish(session, HELLO, sampling, max_tokens=2)
    with synchronisations() as calls:
        between = []
        for event in session.reply(HELLO, sampling, max_tokens=10):
            if isinstance(event, Round):
                between.append(list(calls))
                calls.clear()
    assert len(between) > 1
    assert all(waits == ["tolist"] for waits in between)


def test_what_is_refused(small: Pair) -> None:
    session = Session(small)
    no_draft = replace(small, draft=None, draft_off="the draft model is off: too big")
    with pytest.raises(BadOptionError, match="too big"):
        Session(no_draft, method="draft")
    for name, value in (("depth", -1), ("depth", 33), ("depth", "deep"), ("method", "magic")):
        with pytest.raises(BadOptionError, match=name):
            setattr(session, name, value)
    with pytest.raises(BadOptionError, match="unknown rule"):
        session.rule = "typical"
    for messages in ([], "", "  \n", [{"role": "robot", "content": "x"}], [{"role": "user"}]):
        with pytest.raises(BadOptionError):
            session.reply(messages)  # type: ignore[arg-type]
    with pytest.raises(BadOptionError, match="max-tokens"):
        session.reply("hi", max_tokens=0)
    with pytest.raises(BadOptionError, match="stop"):
        session.reply("hi", stop=["x", ""])
    with pytest.raises(BadOptionError, match="makes no tokens"):
        session.reply("", raw=True)


def test_nothing_grows_with_the_number_of_turns(small: Pair) -> None:
    session = Session(small, method="draft", depth=2)

    def turn(number: int) -> None:
        finish(session, f"Say {number % 7}", Sampling(seed=number), max_tokens=3)

    def sizes() -> tuple[int, int]:
        gc.collect()
        return mx.get_active_memory(), len(gc.get_objects())

    for number in range(14):
        turn(number)
    memory, objects = sizes()
    for number in range(30):
        turn(number)
    memory_after, objects_after = sizes()
    assert memory_after <= memory + 4096
    assert objects_after <= objects + 25


def test_why_the_draft_model_is_off_is_said_once(small: Pair) -> None:
    session = Session(replace(small, draft=None, draft_off="the draft model is off: too big"))
    said = []
    for _ in range(2):
        events = session.reply(HELLO, GREEDY, max_tokens=2)
        said += [event.message for event in events if isinstance(event, Notice)]
    assert said == ["the draft model is off: too big"]


def test_a_sleep_is_no_cost_of_a_round(small: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(small, method="off")
    looks, costs = iter([True, False, False, True]), []
    monkeypatch.setattr(session.decoder.sleep, "jumped", lambda: next(looks, False))
    monkeypatch.setattr(session.controller, "observe_cost", lambda *cost: costs.append(cost[3]))
    stats = finish(session, HELLO, GREEDY, max_tokens=8).stats
    # All passes but the first, and the one in which the machine slept.
    assert sum(seconds is not None for seconds in costs) == stats.passes - 2
    assert stats.itl_ms_median is None
    assert stats.tokens == 8
    assert finish(session, HELLO, GREEDY, max_tokens=8).stats.itl_ms_median is not None


def test_spans_say_who_wrote_which_characters(small: Pair) -> None:
    session = Session(small, method="draft", depth=4)
    events = list(session.reply(HELLO, GREEDY, max_tokens=48, stop=["zebra", "? Z"]))
    texts = [event for event in events if isinstance(event, Text)]
    assert all(sum(length for length, _ in event.spans) == len(event.delta) for event in texts)
    guessed = sum(length for event in texts for length, who in event.spans if who == "draft")
    assert 0 < guessed < sum(len(event.delta) for event in texts)
    assert {event.part for event in texts} == {"answer"}
    # Emitted tokens stand with the first text of their round, and none is missing.
    finished = session.finished
    assert finished is not None
    told = tuple(token.id for event in texts for token in event.tokens)
    assert told == finished.token_ids


def test_a_reply_goes_on_where_it_was_cut(small: Pair) -> None:
    session = Session(small)
    whole = finish(session, HELLO, GREEDY, max_tokens=24)
    for length in (1, 7, 12):
        begun = {"role": "assistant", "content": whole.text[:length]}
        prompt = prompt_tokens(small, HELLO)
        events = list(session.reply([*HELLO, begun], GREEDY, max_tokens=24, resume=True))
        (prefilled,) = [event for event in events if isinstance(event, Prefilled)]
        assert len(prompt) < prefilled.prompt_tokens <= len(prompt) + length
        assert session.decoder.tokens[: len(prompt)] == prompt
    # Cut between two words, the rest is what would have come anyway.
    at = whole.text.index(" ", 8)
    begun = {"role": "assistant", "content": whole.text[:at]}
    rest = finish(session, [*HELLO, begun], GREEDY, max_tokens=24, resume=True)
    assert (whole.text[:at] + rest.text).startswith(whole.text)
    with pytest.raises(BadOptionError, match="no reply to continue"):
        session.reply(HELLO, resume=True)


def test_how_close_a_choice_was(small: Pair) -> None:
    session = Session(small, method="off", rule="keyed")
    for sampling in (GREEDY, Sampling(temperature=0.8, top_p=0.9, seed=3, repetition_penalty=1.2)):
        ids = finish(session, HELLO, sampling, max_tokens=12).token_ids
        for at in (0, 5, len(ids) - 1):
            margin, tolerance = session.score_margin(HELLO, ids[:at], [ids[at]])
            assert margin <= tolerance  # it was the best, but for the rounding of other rows
            assert (
                session.score_margin(HELLO, ids[:at], [ids[at], (ids[at] + 1) % 900])[0] > tolerance
            )
        assert finish(session, HELLO, sampling, max_tokens=12).token_ids == ids
    with pytest.raises(BadOptionError, match="no such token"):
        session.score_margin(HELLO, [], [10**9])


def test_a_reply_can_leave_past_replies_alone(small: Pair, tmp_path: Path) -> None:
    corpus = Corpus.open(tmp_path, "key")
    session = Session(small, corpus=corpus, depth=8)
    ids = finish(session, HELLO, GREEDY, max_tokens=12, learn=False).token_ids
    corpus.save()
    assert ids not in corpus.replies
    assert finish(session, HELLO, GREEDY, max_tokens=12).token_ids == ids
    corpus.save()
    assert ids in corpus.replies
    session.method = "suffix"
    copied = finish(session, HELLO, GREEDY, max_tokens=12)
    assert copied.stats.accepted >= 8
    alone = finish(session, HELLO, GREEDY, max_tokens=12, learn=False)
    assert alone.token_ids == ids
    assert alone.stats.accepted < copied.stats.accepted


def test_what_is_learned_of_a_round_is_what_it_brought(
    small: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(small, method="draft", depth=6)
    learned: list[tuple[int, int]] = []

    def learn(drafter: str, bucket: int, drafted: int, accepted: int) -> None:
        learned.append((drafted, accepted + 1))

    monkeypatch.setattr(session.decoder.controller.acceptance, "observe", learn)
    brought, ends = [], 0
    for text in ("Hello!", "Thanks.", "What is 3 plus 4?", "I need a hotel in London."):
        asked = [{"role": "user", "content": text}]
        rounds = [it for it in session.reply(asked, GREEDY) if isinstance(it, Round)]
        brought += [(it.depth, len(it.tokens)) for it in rounds]
        ends += rounds[-1].accepted == len(rounds[-1].tokens)
    assert ends > 0  # the reply ended among what was drafted
    assert learned == brought
