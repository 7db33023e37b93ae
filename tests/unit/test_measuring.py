"""Costs that are measured while the machine is idle, on a scripted clock."""

from __future__ import annotations

import random
from typing import Any

import pytest
from test_decoding import KEYED, PROMPT, session_of, tokens_of
from test_hybrid_costs import Clock, Timed

from macspec.control import Plan
from macspec.models import Pair
from macspec.rounds import Reply


@pytest.mark.parametrize("seed", range(3))
def test_bursts_of_load_teach_no_wrong_costs(pocket: Pair, seed: int) -> None:
    session, clock, rng = session_of(pocket, "llama", rule="keyed"), Clock(), random.Random(seed)
    decoder = session.decoder
    decoder.portfolio.drafters.pop("draft")
    tokens_of(session, PROMPT, KEYED, 6)
    loads = [it for _ in range(900) for it in [rng.choice((1.0, 1.5))] * rng.randrange(12, 30)]
    decoder.clock, module = clock, decoder.target.module
    timed: Any = Timed(module, clock, lambda rows: loads.pop() * (0.5 + 0.5 * rows))
    decoder.target.module = timed
    for _ in session.measure(1e6):
        pass
    curve = session.controller.curve
    assert not curve.missing(len(decoder.tokens))
    for _, depth, *_, costs in curve.as_dict()["rounds"]:
        assert costs == [pytest.approx(1 + 0.5 * depth, rel=0.2)] * len(costs), depth


def test_what_the_host_does_in_a_reply_is_part_of_its_rounds(
    pocket: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, clock = session_of(pocket, "llama", method="draft", depth=2, rule="keyed"), Clock()
    decoder, curve, host = session.decoder, session.controller.curve, 0.2
    decoder.clock = clock
    drafter: Any = decoder.portfolio.drafters["draft"]
    for model, cost in ((decoder.target, 0.5), (drafter.stepper.model, 0.05)):
        model.module = Timed(model.module, clock, lambda rows, cost=cost: cost * (1 + rows))
    tokens_of(session, PROMPT, KEYED, 6)
    for _ in session.measure(1e6):
        pass
    measured, plan = curve.round("draft", 2, len(decoder.tokens)), decoder.plan

    def planned(reply: Reply) -> Plan:
        clock.now += host
        return plan(reply)

    monkeypatch.setattr(decoder, "plan", planned)
    tokens_of(session, PROMPT, KEYED, 30)
    assert curve.round("draft", 2, len(decoder.tokens)) == pytest.approx(measured + host)
