"""What a head costs is measured, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from blockfiles import block_of
from headfiles import head_of
from test_decoding import KEYED, PROMPT, session_of, tokens_of
from test_hybrid_costs import Clock, Timed

from macspec.learned import control_state
from macspec.models import Pair


class TimedHead:
    """A head whose steps take time, by their rows."""

    def __init__(self, head: Any, clock: Clock) -> None:
        self._head, self._clock = head, clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._head, name)

    def __call__(self, hidden: mx.array, embedded: mx.array, cache: Any) -> Any:
        self._clock.now += 0.1 + 0.01 * hidden.shape[1]
        return self._head(hidden, embedded, cache)


@pytest.mark.parametrize(("name", "kind"), [("llama", "eagle"), ("qwen3_5", "mtp")])
def test_steps_and_reading_are_measured(
    pocket: Pair, tmp_path: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("macspec.learned.REPEATS", 1)
    monkeypatch.setattr("macspec.learned.AT_ONCE", 20)
    head = head_of(pocket, name, kind, tmp_path)
    plain = session_of(pocket, name, method="off", rule="keyed")
    session, clock = (
        session_of(pocket, name, head=head, method=kind, depth=3, rule="keyed"),
        Clock(),
    )
    decoder = session.decoder
    decoder.portfolio.drafters.pop("draft")
    tokens_of(session, PROMPT, KEYED, 6)
    drafter: Any = decoder.portfolio.drafters[kind]
    (depth,), module = drafter.stepper._depths, decoder.target.module
    decoder.clock, own = clock, depth.head
    depth.head = TimedHead(own, clock)
    decoder.target.module = Timed(module, clock, lambda rows: 0.5 + 0.5 * rows)
    for _ in session.measure():
        pass
    curve = session.controller.curve.as_dict()
    assert curve["steps"][kind] == pytest.approx(0.11)
    assert curve["reading"][kind] == pytest.approx(0.3 / 20)
    decoder.target.module, depth.head = module, own
    again = tokens_of(session, [*PROMPT, 3], KEYED, 12)
    assert again == tokens_of(plain, [*PROMPT, 3], KEYED, 12)


def test_a_block_is_measured_whole(
    pocket: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("macspec.learned.REPEATS", 1)
    monkeypatch.setattr("macspec.learned.AT_ONCE", 1)
    head = block_of(pocket, "llama", "deepspec", tmp_path)
    session, clock = session_of(pocket, "llama", head=head, method=head.kind), Clock()
    decoder = session.decoder
    decoder.portfolio.drafters.pop("draft")
    tokens_of(session, PROMPT, KEYED, 6)
    drafter: Any = decoder.portfolio.drafters[head.kind]
    stepper, module = drafter.stepper, decoder.target.module
    decoder.clock = clock
    decoder.target.module = Timed(module, clock, lambda rows: 1.0)
    first, read = stepper.first, stepper.head.read

    def timed(*args: Any) -> Any:
        clock.now += 0.6
        return first(*args)

    def timed_read(*args: Any) -> Any:
        clock.now += 0.3
        return read(*args)

    monkeypatch.setattr(stepper, "first", timed)
    stepper.head.read = timed_read
    for _ in session.measure():
        pass
    assert session.controller.curve.as_dict()["steps"][head.kind] == pytest.approx(0.6)


def test_two_heads_of_one_size_do_not_share_what_is_learned(pocket: Pair, tmp_path: Path) -> None:
    head = head_of(pocket, "llama", "eagle", tmp_path)
    pairs = [replace(pocket, head=it) for it in (head, replace(head, name="another"), None)]
    assert len({control_state(it, folder=tmp_path).path for it in pairs}) == 3
