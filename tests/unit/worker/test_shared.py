"""Replies that take turns over one pair: exactly what they would be alone, fairly, and bounded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from tinymodels import noisy_folder, saved

from macspec import Session, load_pair
from macspec.errors import BadOptionError, ContextOverflowError
from macspec.events import Event, Finished, Notice, Prefilling, Round
from macspec.models import Pair
from macspec.sampling import Sampling
from macspec.settings import Settings
from macspec.worker import Failed, Queued, ReplyRequest, SharedReply, shared
from macspec.worker.shared import Shared

TEXTS = ("Hello!", "Tell me about cats.", "What is 2+3?", "Book a table for two.")

KEYED = Settings("draft", 3, "keyed", Sampling(0.8, seed=5))


def request(text: str, max_tokens: int | None = 12, **more: Any) -> SharedReply:
    messages = ({"role": "user", "content": text},)
    return SharedReply(ReplyRequest(messages, max_tokens=max_tokens, learn=False), **more)


def several(pair: Pair, memory: int = 2**40) -> Shared:
    return Shared(Session(pair, kernels="off"), memory)


def run(
    it: Shared, seen: Callable[[int, Any], None] = lambda call, event: None
) -> dict[int, Finished]:
    """Take turns until all have ended."""
    done = {}
    while (call := it.turn_of) is not None:
        if (finished := it.turn(seen)) is not None:
            done[call] = finished
    return done


@pytest.fixture(scope="module")
def alone(small: Pair) -> dict[str, tuple[int, ...]]:
    """What each text is answered with when nothing else runs, and nothing is drafted."""
    found = {}
    for text in TEXTS:
        it = several(small)
        it.begin(0, request(text), replace(KEYED, method="off"))
        found[text] = run(it)[0].token_ids
    return found


def test_replies_in_turn_are_what_they_are_alone_and_take_turns_by_rounds(
    small: Pair, alone: dict[str, tuple[int, ...]]
) -> None:
    it, rounds = several(small), []
    for call, text in enumerate(TEXTS):
        assert isinstance(it.begin(call, request(text), KEYED), Queued)
    done = run(it, lambda call, event: rounds.append(call) if isinstance(event, Round) else None)
    assert {TEXTS[call]: end.token_ids for call, end in done.items()} == alone
    for call in done:
        turns = [at for at, one in enumerate(rounds) if one == call]
        assert all(after - at <= len(TEXTS) for at, after in pairwise(turns))
    assert len(it.at_rest) == 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3_5", "gemma3_text", "lfm2"])
def test_states_and_windows_of_replies_in_turn_are_their_own(name: str, tmp_path: Path) -> None:
    """Each is edited and asked again, too, which takes their caches back."""
    target = saved(name, tmp_path / "target")
    draft = noisy_folder(target, tmp_path / "draft")
    pair, said = load_pair(str(target), str(draft), context=512), {}
    for method, it in (("off", several(pair)), ("draft", several(pair))):
        found: list[tuple[int, ...]] = []
        for texts in (TEXTS, [f"{text} Please." for text in TEXTS], TEXTS):
            for call, text in enumerate(texts):
                it.begin(call, request(text), replace(KEYED, method=method))
                if method == "off":
                    found.append(run(it)[call].token_ids)
            if method == "draft":
                done = run(it)
                found += [done[call].token_ids for call in range(len(texts))]
        said[method] = found
    assert said["draft"] == said["off"]


def test_a_conversation_is_continued_by_the_prompt_that_shares_most_with_it(small: Pair) -> None:
    it = several(small)
    for call, text in enumerate(TEXTS):
        it.begin(call, request(text), KEYED)
    run(it)
    cached = {}
    for call, text in enumerate(reversed(TEXTS)):
        it.begin(call, request(text), KEYED)
        end = run(it)[call]
        cached[text] = end.stats.prompt_tokens - end.stats.cached_tokens
    assert set(cached.values()) == {1}
    assert len(it.at_rest) == 4


def test_a_long_prompt_gives_way_between_its_chunks(
    small: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "PREFILL_CHUNK", 64)
    it, order = several(small), []
    it.begin(0, request("word " * 300, 1), KEYED)
    it.begin(1, request("Hello!", 6), KEYED)
    run(it, lambda call, event: order.append((call, type(event))))
    reading = [at for at, each in enumerate(order) if each == (0, Prefilling)]
    assert len(reading) >= 4
    assert (1, Round) in order[reading[0] : reading[-1]]


def test_no_more_take_turns_than_memory_allows_and_none_overtakes(small: Pair) -> None:
    room = small.caches(200) * 2
    it, began = several(small, room), []
    for call, size in enumerate((150, 150, None, 8)):
        it.begin(call, request(TEXTS[call], size), replace(KEYED, depth=0))

    def see(call: int, event: Any) -> None:
        if call not in began:
            began.append(call)
        held = sum(small.caches(one.positions) for one in (*it.at_rest, *it._conversations()))
        assert held <= room or len(it.live) == 0

    run(it, see)
    assert began == [0, 1, 2, 3]


def test_conversations_at_rest_are_bounded(small: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "KEPT", 2)
    it = several(small)
    for call, text in enumerate(TEXTS):
        it.begin(call, request(text, 2), KEYED)
        run(it)
    assert len(it.at_rest) == 2


def test_a_reply_that_is_stopped_keeps_its_text_and_the_others_go_on(
    small: Pair, alone: dict[str, tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "MOST", 2)
    it = several(small)
    for call, text in enumerate(TEXTS[:3]):
        it.begin(call, request(text), KEYED)
    for _ in range(4):
        assert it.turn_of in (0, 1)
        it.turn(lambda call, event: None)
    end = it.stop(0)
    assert isinstance(end, Finished)
    assert end.reason == "interrupted"
    assert end.token_ids == alone[TEXTS[0]][: len(end.token_ids)] != ()
    stopped = it.stop(2)
    assert isinstance(stopped, Failed)
    assert stopped.kind == "stopped"
    assert run(it)[1].token_ids == alone[TEXTS[1]]


def test_a_round_that_fails_ends_its_reply_alone(
    small: Pair, alone: dict[str, tuple[int, ...]]
) -> None:
    it = several(small)
    for call, text in enumerate(TEXTS[:2]):
        it.begin(call, request(text), KEYED)
    assert it.turn_of == 0

    def failing() -> Generator[Event, None, None]:
        yield Notice("a first round")
        raise ZeroDivisionError

    it.live[0].events = failing()
    it.turn(lambda call, event: None)
    it.turn(lambda call, event: None)
    with pytest.raises(ZeroDivisionError):
        it.turn(lambda call, event: None)
    assert it.calls == [1]
    assert run(it)[1].token_ids == alone[TEXTS[1]]
    assert len(it.at_rest) == 1


def test_what_is_wrong_is_said_before_anything_waits(small: Pair) -> None:
    it = several(small)
    for wrong, error in (
        (request(" "), BadOptionError),
        (request("word " * 2000), ContextOverflowError),
        (request("Hello!", 0), BadOptionError),
        (request("Hello!", tools='[{"type": "function"}]'), BadOptionError),
    ):
        with pytest.raises(error):
            it.begin(0, wrong, KEYED)
    assert not it


def test_a_long_text_is_tokenized_while_others_have_their_turns(
    small: Pair, alone: dict[str, tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four: one takes turns, and of three long ones two are queued late and one is stopped."""
    monkeypatch.setattr(shared, "LONG", len(TEXTS[0]) + len("user"))
    it, opened = several(small), threading.Event()
    chat = it._prompting.chat

    def gated(messages: Any, *rest: Any, **more: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            assert opened.wait(60)
        return chat(messages, *rest, **more)

    monkeypatch.setattr(it._prompting, "chat", gated)
    for call, text in enumerate((*TEXTS[:3], "word " * 2000)):
        assert isinstance(it.begin(call, request(text), KEYED), Queued) == (call == 0)
    assert it.calls == [0, 1, 2, 3]
    done = run(it)
    assert done[0].token_ids == alone[TEXTS[0]]
    assert (list(done), it.tokenized, it.turn_of, bool(it)) == ([0], [], None, True)
    assert isinstance(it.stop(2), Failed)
    opened.set()
    while len(it.tokenized) < 2:
        it.wait(1)
    assert isinstance(it.queue(1), Queued)
    with pytest.raises(ContextOverflowError):
        it.queue(3)
    assert run(it)[1].token_ids == alone[TEXTS[1]]
    assert not it


def test_a_prediction_saves_passes_and_changes_nothing(small: Pair) -> None:
    """An edit of a file that the prompt does not have, with the edited file as forced tokens."""
    plain, predicted = edits(small, lines=9)
    assert plain >= 2 * predicted


@pytest.mark.slow
def test_an_edit_of_300_lines_takes_less_than_half_the_passes(tmp_path: Path) -> None:
    pair = load_pair(str(saved("llama", tmp_path / "target")), context=4096)
    plain, predicted = edits(pair, lines=300)
    assert plain >= 2 * predicted


def edits(pair: Pair, lines: int) -> tuple[int, int]:
    """Passes for an edit of so many lines of code, without a prediction and with one."""
    code = Path(shared.__file__).read_text().splitlines()
    old = [line.strip()[:20] for line in code][:lines]
    at = lines // 3
    new = [*old[:at], "# a new line", *old[at : 2 * at], *old[2 * at + 2 :]]
    tokens = tuple(pair.target.tokenizer.encode("\n".join(new), add_special_tokens=False))
    passes = []
    for prediction in ("", "\n".join(old)):
        it = several(pair)
        asked = request("Edit it.", None)
        asked = replace(asked, request=replace(asked.request, forced=tokens))
        it.begin(0, replace(asked, prediction=prediction), Settings("suffix", 8, "keyed"))
        done = run(it)[0]
        assert done.token_ids == tokens
        passes.append(done.stats.passes)
    return passes[0], passes[1]


def test_log_probabilities_are_the_models_before_temperature(small: Pair) -> None:
    """Compared with the model's own logits after the same tokens."""
    it, seen = several(small), []
    prompt = it._prompt(request(TEXTS[1]), []).tokens
    for call, settings in enumerate((KEYED, replace(KEYED, method="suffix"))):
        it.begin(call, request(TEXTS[1], logprobs=2), settings)
    done = run(it, lambda call, event: seen.append((call, event)))
    module: Any = small.target.module
    logits = module(mx.array([[*prompt, *done[0].token_ids]]))[0].astype(mx.float32)
    log_p = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    for call in (0, 1):
        entries = [
            entry
            for one, event in seen
            if one == call and isinstance(event, Round)
            for entry in event.logprobs
        ]
        ids = [token for token in done[call].token_ids if token not in small.stop_ids]
        assert len(entries) == len(ids)
        for at, (entry, token) in enumerate(zip(entries, ids, strict=True)):
            row = log_p[len(prompt) - 1 + at]
            assert entry.logprob == pytest.approx(row[token].item(), abs=1e-3)
            assert entry.top[0][1] == pytest.approx(mx.max(row).item(), abs=1e-3)
            assert entry.token == small.target.tokenizer.decode([token])
