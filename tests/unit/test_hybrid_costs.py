"""The whole engine on a clock that passes, draft steps and replays move: what ``auto`` reaches."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import pytest
from replies import Rows
from test_decoding import KEYED, session_of, tokens_of
from tinymodels import VOCABULARY

from macspec import Round, recurrent
from macspec.bench.published import published
from macspec.models import Pair

STEP = 0.06
"""Of the draft model, in plain steps; reading a further token takes a twentieth of it."""

REPLAY = recurrent.Tape.replay


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Timed(Rows):
    """A model whose passes take time, by their rows."""

    def __init__(self, module: Any, clock: Clock, cost: Any) -> None:
        super().__init__(module)
        self.clock, self.cost = clock, cost

    def __call__(self, tokens: mx.array, cache: Any) -> Any:
        logits = super().__call__(tokens, cache)
        self.clock.now += self.cost(tokens.shape[1])  # once the device has begun
        return logits


def speed(
    pair: Pair, depth: int | str, cost: Any, replay: float, patch: pytest.MonkeyPatch
) -> tuple[float, float]:
    """Tokens a plain step once it has learned, and what the controller takes a replay to cost."""
    session, clock = session_of(pair, "qwen3_5", method="draft", depth=depth, rule="keyed"), Clock()
    decoder = session.decoder
    decoder.clock = clock

    owed: list[float] = []

    def replayed(tape: recurrent.Tape, kept: int) -> None:
        owed.append(replay)  # the device's, when it begins the next pass
        REPLAY(tape, kept)

    def passing(rows: int) -> float:
        due, owed[:] = sum(owed), []
        return float(cost(rows)) + due

    patch.setattr(recurrent.Tape, "replay", replayed)
    decoder.target.module = Timed(decoder.target.module, clock, passing)
    drafter: Any = decoder.portfolio.drafters["draft"]
    draft = drafter.stepper.model
    draft.module = Timed(draft.module, clock, lambda rows: STEP * (0.95 + rows / 20))
    rng = random.Random(17)
    tokens_of(session, [3, 4, 5], KEYED, 2)
    if depth == "auto":
        for _ in session.measure(1000.0):
            pass
    tokens, seconds = 0, 0.0
    for number in range(8):
        text = " ".join(str(rng.randrange(VOCABULARY)) for _ in range(20))
        events = session.reply(text, KEYED, raw=True, max_tokens=100)
        rounds = [event for event in events if isinstance(event, Round)][1:]
        if number < 2:
            continue  # it learns
        tokens += sum(len(it.tokens) for it in rounds)
        seconds += sum(it.seconds for it in rounds)
    return tokens / seconds, session.controller.curve.replay


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("replay", [0.05, 0.4])
def test_auto_is_near_the_best_depth_whatever_a_replay_costs(
    pocket: Pair, replay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    curve = next(it for it in published() if it.name == "m5-max-4bit")
    fixed = [speed(pocket, it, curve.cost, replay, monkeypatch)[0] for it in (0, 1, 2, 3, 4)]
    auto, learned = speed(pocket, "auto", curve.cost, replay, monkeypatch)
    assert auto >= 0.96 * max(fixed)
    assert auto >= 0.97 * fixed[0]
    assert learned == pytest.approx(replay, rel=0.15)
