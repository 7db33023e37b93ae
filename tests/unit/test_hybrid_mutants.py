"""Faults that others had when they took rows back from stateful layers: each is noticed here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache
from replies import Rows
from test_decoding import GREEDY, PROMPT, session_of, tokens_of
from test_hybrids import ROWS, TEXT, fed, fresh

from macspec import Round, cache, recurrent
from macspec.cache import ModelCache
from macspec.decode import Decoder
from macspec.models import Pair
from macspec.models.cached import CachedModel
from macspec.models.rollback import TRIED

NAME = "qwen3_5"
Patch = pytest.MonkeyPatch

REPLAY, ROLLBACK, RECORDING = recurrent.Tape.replay, ModelCache.rollback, ModelCache.recording


def states(layers: list[Any]) -> list[Any]:
    return [layer for layer in layers if isinstance(layer, ArraysCache)]


def goes_back() -> bool:
    """To each row of a pass, twice in a row, and through a chain of single rows."""
    for kept in range(1, len(ROWS)):
        straight, back = fresh(NAME), fresh(NAME)
        fed(NAME, straight, ROWS[:kept])
        fed(NAME, back, ROWS)
        back.rollback(len(TEXT) + kept)
        if not same(back, straight):
            return False
        # A second round: one row, then several, of which one stays.
        for it in (back, straight):
            fed(NAME, it, [4])
        fed(NAME, back, ROWS)
        back.rollback(back.length - len(ROWS) + 1)
        fed(NAME, straight, ROWS[:1])
        if not same(back, straight):
            return False
    chain, straight = fresh(NAME, steps=3), fresh(NAME)
    for token in ROWS[:3]:
        fed(NAME, chain, [token])
    chain.rollback(len(TEXT) + 1)
    fed(NAME, straight, ROWS[:1])
    return same(chain, straight)


def same(a: ModelCache, b: ModelCache) -> bool:
    pairs = zip(states(a.layers), states(b.layers), strict=True)
    slots = [pair for x, y in pairs for pair in zip(x.cache, y.cache, strict=True)]
    return a.length == b.length and all(mx.array_equal(x, y).item() for x, y in slots)


def keeps_a_row_more(patch: Patch) -> None:
    patch.setattr(recurrent.Tape, "replay", lambda tape, kept: REPLAY(tape, kept + 1))


def keeps_a_row_less(patch: Patch) -> None:
    patch.setattr(recurrent.Tape, "replay", lambda tape, kept: REPLAY(tape, kept - 1 or 1))


def leaves_the_window(patch: Patch) -> None:
    """mlx-swift-lm 218: the convolution's window is not rolled back."""

    def rollback(self: ModelCache, length: int) -> None:
        windows = [layer.cache[0] for layer in states(self.layers)]
        ROLLBACK(self, length)
        for layer, window in zip(states(self.layers), windows, strict=True):
            layer.cache[0] = window

    patch.setattr(ModelCache, "rollback", rollback)


def saves_nothing(patch: Patch) -> None:
    """imp 1503: the state before the pass was never written."""
    patch.setattr(cache, "_restore", lambda caches, snapshot: None)


def rolls_back_twice(patch: Patch) -> None:
    def replay(tape: recurrent.Tape, kept: int) -> None:
        REPLAY(tape, kept)
        REPLAY(tape, kept)

    patch.setattr(recurrent.Tape, "replay", replay)


def takes_a_stale_state(patch: Patch) -> None:
    """llama.cpp 29117: after single rows the state of an older step comes back."""

    def pass_with(self: ModelCache, length: int) -> Any:
        return next((it for it in self._passes if it.start <= length), None)

    patch.setattr(ModelCache, "_pass_with", pass_with)


def never_consumes_the_length(patch: Patch) -> None:
    """turboquant 352: each replay takes as many rows as the first one did."""
    first: list[int] = []

    def replay(tape: recurrent.Tape, kept: int) -> None:
        first.append(kept)
        REPLAY(tape, first[0])

    patch.setattr(recurrent.Tape, "replay", replay)


def records_in_half_precision(patch: Patch) -> None:
    def replay(tape: recurrent.Tape, kept: int) -> None:
        for call in tape.calls:
            for own in call.outputs:
                for at, array in enumerate(own):
                    own[at] = array.astype(mx.bfloat16).astype(array.dtype)
        REPLAY(tape, kept)

    patch.setattr(recurrent.Tape, "replay", replay)


@pytest.mark.parametrize(
    "mutant",
    [
        keeps_a_row_more, keeps_a_row_less, leaves_the_window, saves_nothing, rolls_back_twice,
        takes_a_stale_state, never_consumes_the_length, records_in_half_precision,
    ],
)  # fmt: skip
def test_the_fault_is_noticed(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    assert goes_back()
    fresh(NAME)
    mutant(monkeypatch)
    with pytest.MonkeyPatch.context() as patch:
        # The trial at load would refuse the model, as it should: look behind it.
        recorder = recurrent.Recorder(stock_model())
        patch.setattr("test_hybrids.recorder_of", lambda *_: recorder)
        assert not goes_back()


@pytest.mark.parametrize("mutant", [keeps_a_row_more, saves_nothing, leaves_the_window])
def test_the_trial_at_load_refuses_it(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    model = stock_model()
    monkeypatch.delitem(vars(model), TRIED, raising=False)
    mutant(monkeypatch)
    assert CachedModel(model, 61).cache.reason is not None
    del vars(model)[TRIED]


def stock_model() -> Any:
    from tinymodels import tiny

    return tiny(NAME)


def share_the_tape(patch: Patch) -> None:
    """What a model's newest pass left serves every conversation."""
    newest: list[recurrent.Tape] = []

    @contextmanager
    def recording(self: ModelCache, rows: int) -> Iterator[None]:
        with RECORDING(self, rows):
            yield
        newest.extend(it.tape for it in self._passes[-1:] if it.tape is not None)

    patch.setattr(ModelCache, "recording", recording)
    patch.setattr(recurrent.Tape, "replay", lambda _, kept: REPLAY(newest[-1], kept))


def test_two_conversations_over_one_model_do_not_mix(pocket: Pair, monkeypatch: Patch) -> None:
    """llama.cpp 28019: several sequences, in mid-round at the same time."""
    plain = session_of(pocket, NAME, method="off")
    prompts = [PROMPT, PROMPT[3:]]
    expected = [tokens_of(plain, prompt, GREEDY, 30) for prompt in prompts]

    def interleaved() -> list[Any]:
        sessions = [session_of(pocket, NAME, method="draft", depth=4) for _ in prompts]
        replies = [
            session.reply(" ".join(map(str, prompt)), GREEDY, raw=True, max_tokens=30)
            for session, prompt in zip(sessions, prompts, strict=True)
        ]
        ended = 0
        while ended < len(replies):
            ended = sum(next(reply, None) is None for reply in replies)
        return [it.finished and it.finished.token_ids for it in sessions]

    assert interleaved() == expected
    share_the_tape(monkeypatch)
    assert interleaved() != expected


def rows_read(session: Any) -> list[int]:
    """Rows of the target's passes after the one with the end of the prompt."""
    session.decoder.target.module = counting = Rows(session.decoder.target.module)
    tokens_of(session, PROMPT, GREEDY, 40)
    return counting.seen[2:]


def test_a_rejection_reads_nothing_again(pocket: Pair, monkeypatch: Patch) -> None:
    """omlx 3416: each rejection read the whole prompt again."""
    depth = 4
    assert max(rows_read(session_of(pocket, NAME, method="draft", depth=depth))) <= depth + 1
    session = session_of(pocket, NAME, method="draft", depth=depth)
    monkeypatch.setattr(ModelCache, "can_rollback", lambda self, length: length == self.length)
    assert max(rows_read(session)) > depth + 1


def test_a_reply_closed_in_mid_round_leaves_nothing_behind(
    pocket: Pair, monkeypatch: Patch
) -> None:
    """Rapid-MLX 1246: a cancelled request left half a round in the state."""
    text = " ".join(map(str, PROMPT))
    expected = tokens_of(session_of(pocket, NAME, method="off"), PROMPT, GREEDY, 30)

    def again() -> tuple[int, ...]:
        session = session_of(pocket, NAME, method="draft", depth=4)
        reply = session.reply(text, GREEDY, raw=True, max_tokens=30)
        seen = 0
        for event in reply:
            seen += isinstance(event, Round)
            if seen == 3:
                break
        reply.close()
        grown = [*PROMPT, *session.decoder.tokens[len(PROMPT) :]]
        rest = len(expected) - (len(grown) - len(PROMPT))
        return (*grown[len(PROMPT) :], *tokens_of(session, grown, GREEDY, rest))

    assert again() == expected
    monkeypatch.setattr(Decoder, "rollback", lambda self, length: None)
    with suppress(ValueError):
        assert again() != expected
