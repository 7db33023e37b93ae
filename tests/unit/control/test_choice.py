"""The choice before each round."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macspec.choices import MAX_DEPTH, METHODS, outlook
from macspec.control import (
    BUCKETS,
    OFF,
    AcceptanceEstimate,
    Controller,
    CostCurve,
    Offer,
    Plan,
)
from macspec.control.choice import REST, SETTLED
from macspec.control.cost import GIVEN, MODEL_DEPTHS, ROWS, SAMPLES, SHIPPED, STALE
from macspec.control.state import PARAMETERS

offers = st.lists(
    st.builds(
        Offer,
        drafter=st.sampled_from(["draft", "mtp", "ngram"]),
        room=st.integers(0, MAX_DEPTH),
        bucket=st.integers(0, BUCKETS - 1),
        unread=st.integers(0, 600),
        branches=st.booleans(),
    ),
    max_size=3,
    unique_by=lambda offer: offer.drafter,
)


def made() -> Controller:
    curve = CostCurve({"draft": 0.05, "mtp": 0.05})
    curve.set_plain(100, 1.0)
    for rows, cost in SHIPPED.items():
        if rows in ROWS[1:]:
            curve.learn(GIVEN, rows - 1, 100, cost)
    return Controller(curve, AcceptanceEstimate())


def play(controller: Controller, plan: Plan, accepted: int) -> None:
    """A round as the decoding loop tells of it, at the cost that was expected."""
    controller.observe_cost(plan, plan.depth, accepted + 1, plan.cost)
    if plan.drafter is not None:
        controller.acceptance.observe(plan.drafter, plan.bucket, plan.depth, accepted)


@given(st.lists(st.tuples(offers, st.integers(0, 40), st.integers(0, 40)), max_size=30),
       st.sampled_from([None, 1, 5, 32]))  # fmt: skip
def test_it_never_drafts_beyond_room_or_limit(
    rounds: list[tuple[list[Offer], int, int]], depth: int | None
) -> None:
    controller = made()
    for what, limit, run in rounds:
        plan = controller.choose(what, 100, limit, depth)
        rooms = {offer.drafter: offer.room for offer in what}
        assert plan.depth <= min(limit, depth or MAX_DEPTH)
        if plan.drafter is None:
            assert plan.depth == 0
        else:
            assert 1 <= plan.depth <= rooms[plan.drafter]
            assert plan.branch is None or plan.branch < plan.depth
        if depth is not None:
            assert (plan.depth > 0) == (min(max([0, *rooms.values()]), limit) > 0)
        assert plan.why
        assert "\n" not in plan.why
        play(controller, plan, min(run, plan.depth))


@given(offers, st.integers(0, 40))
def test_asking_twice_changes_nothing(what: list[Offer], limit: int) -> None:
    controller = made()
    first = controller.choose(what, 100, limit)
    state = _state(controller)
    assert controller.choose(what, 100, limit) == first
    assert _state(controller) == state


def _state(controller: Controller) -> dict[str, Any]:
    state = copy.deepcopy(vars(controller))
    curve, acceptance = state.pop("curve"), state.pop("acceptance")
    return {**state, "curve": curve.as_dict(), "acceptance": acceptance.as_dict()}


def test_it_drafts_at_once() -> None:
    controller = Controller(CostCurve({"draft": 0.05}), AcceptanceEstimate())
    assert controller.choose([Offer("draft", 32, 5, 1)], 100, 50).depth > 0


def test_before_costs_are_known_rounds_are_shallow_and_charged_what_they_can_cost_at_most() -> None:
    controller = Controller(CostCurve({"draft": 0.05}), AcceptanceEstimate())
    controller.curve.set_plain(100, 1.0)
    offer = Offer("draft", 8, 7)
    first = controller.choose([offer], 100, 50)
    assert first.depth == 1
    assert first.most == pytest.approx(2.0)
    # Nothing was accepted: another one cannot be afforded, until its cost is known.
    controller.observe_cost(first, 1, 1, None)
    assert controller.choose([offer], 100, 50).depth == 0
    controller.curve.learn("draft", 1, 100, 1.02)
    assert controller.choose([offer], 100, 50).depth > 0


def test_what_was_not_drafted_opens_the_account_again() -> None:
    controller, offer = made(), Offer("draft", 8, 6)
    while (plan := controller.choose([offer], 100, 50)).depth:
        play(controller, plan, 0)
    controller.study("draft", [(6, 8, 8)] * 4, 100)
    assert controller.choose([offer], 100, 50).depth > 1


def test_a_good_drafter_is_used_deeper_than_a_poor_one() -> None:
    depths = []
    for bucket in (0, 2, 7):
        controller = made()
        controller.study("ngram", [(7, 8, 8)] * 3, 100)  # so that the account covers any depth
        play(controller, controller.choose([Offer("ngram", 1, 7)], 100, 50), 1)
        depths.append(controller.choose([Offer("ngram", 32, bucket)], 100, 50).depth)
    assert 0 == depths[0] < depths[1] < depths[2]


@pytest.mark.parametrize(("times", "depth"), [(0.995, 0), (1.005, 1)])
def test_drafting_must_promise_the_margin(
    monkeypatch: pytest.MonkeyPatch, times: float, depth: int
) -> None:
    controller, cost = made(), 1.5 / (times * PARAMETERS.hysteresis)
    monkeypatch.setattr(controller.acceptance, "expected", lambda *_: [1.0] + [1.5] * MAX_DEPTH)
    for name in ("round", "most"):
        monkeypatch.setattr(controller.curve, name, lambda *_: cost)
    assert controller.choose([Offer("draft", 1, 4)], 100, 50).depth == depth


def test_leaving_a_run_of_plain_steps_is_part_of_the_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, match = made(), [Offer("ngram", 1, 4)]
    monkeypatch.setattr(controller.acceptance, "expected", lambda *_: [1.0] + [1.5] * MAX_DEPTH)
    monkeypatch.setattr(controller.curve, "leaving", lambda *_: 0.4)
    for name in ("round", "most"):
        monkeypatch.setattr(controller.curve, name, lambda *_: 1.3)
    first = controller.choose(match, 100, 50)
    assert (first.depth, first.cost) == (1, 1.3)
    controller.observe_cost(controller.choose([], 100, 50), 0, 1, None)
    amid = controller.choose(match, 101, 50)
    assert amid.depth == 0
    assert "0.88× plain" in amid.why
    play(controller, first, 1)
    assert controller.choose(match, 103, 50).depth == 1


@pytest.mark.parametrize(("gain", "depth"), [(-0.02, 2), (0.01, 7)])
def test_the_depth_that_promises_most_is_taken_by_however_little(
    monkeypatch: pytest.MonkeyPatch, gain: float, depth: int
) -> None:
    controller = made()
    tokens = [1 + 0.05 * drafted for drafted in range(MAX_DEPTH + 1)]
    speed = dict.fromkeys(range(1, MAX_DEPTH + 1), 1.05) | {2: 1.1, 7: 1.1 * (1 + gain)}

    def cost(drafter: str, depth: int, length: int) -> float:
        return tokens[depth] / speed[depth]

    monkeypatch.setattr(controller.acceptance, "expected", lambda *_: tokens)
    monkeypatch.setattr(controller.curve, "round", cost)
    monkeypatch.setattr(controller.curve, "most", lambda *_: 1.0)
    assert controller.choose([Offer("ngram", 8, 5)], 100, 50).depth == depth


def test_after_many_plain_rounds_a_choice_holds_for_some() -> None:
    controller, chosen = made(), []
    controller.curve.set_parts("draft", 3.0, 0.1)
    model, match = Offer("draft", 8, 3, 1), Offer("ngram", 8, 7)
    for number in range(100):
        if not controller.resting:
            plan = controller.choose([model], 100 + number, 50)
            chosen.append(number)
        play(controller, plan, 0)
    assert chosen[:4] == [0, 1, 2, 3]
    gaps = [after - before for before, after in itertools.pairwise(chosen)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == REST
    assert controller.resting
    controller.reader([model], 100, 50)
    assert not controller.resting
    controller.choose([model], 100, 50)
    assert controller.resting
    controller.choose([Offer("ngram", 0, 0)], 100, 50, depth=2)
    assert not controller.resting
    play(controller, controller.choose([model, match], 100, 50), 4)
    assert controller.choose([model], 100, 50).depth == 0
    assert not controller.resting


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 32), min_size=100, max_size=200), st.integers(0, 7))
def test_what_may_be_lost_is_bounded_whatever_is_accepted(runs: list[int], bucket: int) -> None:
    controller, tokens, steps = made(), 0, 0.0
    for run in runs:
        plan = controller.choose([Offer("draft", 32, bucket, 1), Offer("ngram", 32, 7)], 100, 99)
        accepted = min(run, plan.depth) if run > 20 else 0
        play(controller, plan, accepted)
        tokens, steps = tokens + accepted + 1, steps + plan.cost
        allowed = PARAMETERS.allowance * max(tokens + 32, SETTLED)
        assert steps - tokens <= allowed + 0.01


def test_a_drafter_that_never_pays_is_probed_at_the_rate_that_is_set() -> None:
    controller, expected, lost = made(), 0.0, 0.0
    for number in range(6000):
        plan = controller.choose([Offer("draft", 32, 1, 1)], 100, 50)
        play(controller, plan, 0)
        if number >= 1000:
            expected += plan.cost * PARAMETERS.hysteresis - plan.expected if plan.depth else 0.0
            lost += plan.cost - 1
            assert plan.probe or plan.depth == 0
    # One probe may have been saved for before.
    assert 0.5 * PARAMETERS.probing < expected / 5000 <= 1.1 * PARAMETERS.probing
    assert lost / 5000 <= 1.2 * PARAMETERS.probing  # none is taken, which is still being learned


def test_probes_wait_for_the_second_round_and_pay_for_the_lone_plain_one_behind() -> None:
    probes, offer = [], Offer("draft", 32, 1, 1)
    for lone in (1.0, 1.5):
        controller, probed = made(), 0
        controller.curve.learn(GIVEN, 0, 100, lone)
        for number in range(3200):
            first = number % 8 == 0
            if first:
                controller.reader([offer], 100, 50)
            plan = controller.choose([offer], 100, 50)
            assert not (first and plan.probe)
            probed += plan.probe
            overlaps = 0 if plan.depth else 2
            controller.observe_cost(plan, plan.depth, 1, plan.cost, overlaps)
            controller.acceptance.observe("draft", 1, plan.depth, 0)
        probes.append(probed)
    assert 5 <= 2 * probes[1] < probes[0]


def test_a_drafter_that_pays_again_is_found() -> None:
    controller = made()
    for _ in range(600):
        play(controller, controller.choose([Offer("draft", 32, 1, 1)], 100, 50), 0)
    depths = []
    for _ in range(600):
        plan = controller.choose([Offer("draft", 32, 6, 1)], 100, 50)
        depths.append(plan.depth)
        play(controller, plan, plan.depth)
    assert sum(depth > 0 for depth in depths[300:]) > 250


def test_of_two_models_the_better_one_is_found() -> None:
    controller, used = made(), []
    for _ in range(800):
        both = [Offer("draft", 8, 4, 1), Offer("mtp", 8, 4, 1)]
        plan = controller.choose(both, 100, 50)
        play(controller, plan, plan.depth if plan.drafter == "mtp" else min(1, plan.depth))
        used.append(plan.drafter)
    assert used[400:].count("mtp") > 0.9 * 400


def test_plain_steps_are_timed_now_and_then() -> None:
    controller, plain = made(), []
    for number in range(400):
        plan = controller.choose([Offer("draft", 8, 7, 1)], 100, 50)
        play(controller, plan, plan.depth)
        if plan.depth == 0:
            assert plan.probe
            plain.append(number)
    assert plain[0] == SAMPLES + 1, "until then no round was compared with one"
    assert {b - a for a, b in itertools.pairwise(plain)} == {STALE + 2}


def test_where_plain_steps_were_not_timed_at_this_length_they_are_soon() -> None:
    controller, offer = made(), Offer("draft", 32, 6, 1)
    controller.curve.learn("draft", 1, 9000, 1.4)
    for _ in range(SAMPLES + 1):
        plan = controller.choose([offer], 9000, 500)
        assert plan.depth > 0
        play(controller, plan, plan.depth)
    plan = controller.choose([offer], 9000, 500)
    assert (plan.depth, plan.probe) == (0, True)
    assert "timing a plain step" in plan.why
    play(controller, plan, 0)
    assert controller.choose([offer], 9000, 500).depth > 0


def test_a_round_is_charged_for_the_replay_that_may_follow() -> None:
    plans = []
    for replay in (0.1, 1.1):
        controller = made()
        stored = controller.curve.as_dict() | {"replays": [replay]}
        controller.curve.restore(stored)
        plans.append(controller.choose([Offer("draft", 8, 4)], 100, 50, depth=3))
    tokens = controller.acceptance.expected("draft", 4, 3)
    whole = tokens[3] - tokens[2]
    assert plans[1].cost - plans[0].cost == pytest.approx(1 - whole)
    assert 0 < whole < 1


def test_a_drafter_that_may_pay_is_tried_in_the_first_reply() -> None:
    controller = made()
    offer = Offer("draft", 32, 4, 1)
    promised = controller.acceptance.expected("draft", 4, 1)[1]
    for depth in MODEL_DEPTHS:
        controller.curve.learn("draft", depth, 100, promised + depth - 1 + 0.02)
    assert controller.reader([offer], 100, 50) == "draft"
    plans = []
    for _ in range(SETTLED):
        plans.append(controller.choose([offer], 100, 50))
        play(controller, plans[-1], plans[-1].depth)
    assert not plans[0].depth
    assert any(it.probe and it.depth == 1 for it in plans[: SETTLED // 2])
    assert plans[-1].depth
    assert not plans[-1].probe


def test_a_model_reads_the_prompt_if_it_may_pay() -> None:
    controller = made()
    good, poor = (Offer("draft", 32, bucket, 400) for bucket in (7, 0))
    assert controller.reader([good], 400, 99) == "draft"
    assert controller.reader([good], 400, 0) is None
    for _ in range(30):
        controller.acceptance.observe("draft", 0, 1, 0)
    assert controller.reader([poor], 400, 99) is None
    assert controller.reader([replace(good, unread=10**6)], 400, 99) is None
    assert controller.reader([poor], 400, 99, depth=2) == "draft"
    assert controller.reader([], 400, 99) is None


def test_a_reply_keeps_to_one_of_two_models() -> None:
    controller = made()
    both = [Offer(name, 8, 7, 1) for name in ("draft", "mtp")]
    for _ in range(60):
        controller.acceptance.observe("mtp", 7, 4, 3)
    assert controller.reader(both, 400, 99) == "mtp"
    for _ in range(300):
        controller.acceptance.observe("draft", 7, 4, 4)
    assert controller.choose(both, 400, 99).drafter == "mtp"
    assert controller.choose(both[:1], 400, 99).drafter == "draft"
    assert controller.reader(both, 400, 99) == "draft"
    assert controller.choose(both, 400, 99).drafter == "draft"


def test_of_two_models_the_one_that_gains_more_reads_the_prompt() -> None:
    controller = made()
    both = [Offer(name, 8, 7, 400) for name in ("draft", "mtp")]
    for _ in range(60):
        controller.acceptance.observe("draft", 7, 4, 1)
        controller.acceptance.observe("mtp", 7, 4, 4)
    assert controller.reader(both, 400, 99) == "mtp"
    controller.curve.set_parts("mtp", 0.05, 1.0)
    assert controller.reader(both, 400, 99) == "draft"


def test_a_branch_is_taken_where_it_pays() -> None:
    controller = made()
    for depth in (1, 2, 3, 4, 5, 6, 7):
        controller.curve.learn(GIVEN, depth, 100, 1.5)
    offer = Offer("draft", 4, 4, 1, branches=True)
    plan = controller.choose([offer], 100, 50, depth=3)
    assert plan.branch is not None
    assert "with a branch" in plan.why
    assert plan.kind == "draft+"
    for _ in range(200):
        controller.acceptance.observe("draft+", plan.bucket, 1, 0)
    controller.curve.learn(GIVEN, 4, 100, 9.0)
    assert controller.choose([offer], 100, 50, depth=3).branch is None


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("depth", ["auto", 0, 1, MAX_DEPTH])
def test_it_names_what_is_set_and_nothing_else(method: str, depth: int | str) -> None:
    said = outlook(method, depth)
    off = method == "off" or depth == 0
    assert (said == OFF.why) == off
    if not off:
        assert said.startswith("waiting for the first round: ")
        assert "off" not in said
        assert (f"depth {depth}" in said) == isinstance(depth, int)
        assert (method in said) == (method != "auto")


def test_every_depth_that_is_considered_fills_a_measured_pass() -> None:
    plan = made().choose([Offer("ngram", 32, 7)], 100, 50)
    assert plan.depth + 1 in ROWS


@pytest.mark.parametrize(
    ("gain", "watts", "drafter"),
    [
        (1.3, 2.0, "ngram"),  # plain decoding is too slow to be considered
        (1.08, 1.5, None),
        (1.08, 0.9, "ngram"),
        (0.95, 0.5, "ngram"),
        (0.85, 0.5, None),
    ],
)
def test_for_energy_it_takes_the_fewest_joules_among_the_nearly_fastest(
    monkeypatch: pytest.MonkeyPatch, gain: float, watts: float, drafter: str | None
) -> None:
    """``gain``: the speed of the drafter over plain decoding; ``watts``: its power over that."""
    controller = made()
    monkeypatch.setattr(controller.acceptance, "expected", lambda *_: [1.0, *[2.0] * MAX_DEPTH])
    monkeypatch.setattr(controller.curve, "round", lambda *_: 2 / gain)
    monkeypatch.setattr(controller.curve, "most", lambda *_: 2.0)
    offers = [Offer("ngram", 1, 5)]
    controller.objective = "energy"
    before = controller.choose(offers, 100, 50)
    controller.objective = "speed"
    assert before == controller.choose(offers, 100, 50), "nothing was measured yet"
    controller.objective = "energy"
    controller.watts.observe(20.0, [(None, 0, 1.0)])
    controller.watts.observe(20.0 * watts, [("ngram", 1, 1.0)])
    for _ in range(40):
        controller.watts.observe(20.0 * watts, [("ngram", 1, 1.0)])
    plan = controller.choose(offers, 100, 50)
    assert plan.drafter == drafter
    share = watts / gain if drafter else 1.0
    assert plan.why.endswith(f"{share:.2f}× its joules per token")
