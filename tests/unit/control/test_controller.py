"""The choice before each round."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macspec.choices import MAX_DEPTH, METHODS
from macspec.control import (
    BUCKETS,
    OFF,
    AcceptanceEstimate,
    Controller,
    CostCurve,
    Offer,
    Plan,
    outlook,
)
from macspec.control.controller import BUDGET, PIPELINED
from macspec.control.cost import COMPARISONS, SURE

offers = st.lists(
    st.builds(
        Offer,
        drafter=st.sampled_from(["draft", "ngram"]),
        room=st.integers(0, MAX_DEPTH),
        bucket=st.integers(0, BUCKETS - 1),
        unread=st.integers(0, 600),
    ),
    max_size=3,
    unique_by=lambda offer: offer.drafter,
)


def made(step: float = 0.05, length: int = 10) -> Controller:
    """One that knows what a plain round costs, here and by itself."""
    controller = Controller(CostCurve({"draft": step}), AcceptanceEstimate())
    curve = controller.curve
    curve.restore(curve.as_dict() | {"alone": [1.0] * COMPARISONS, "plain": [[length, 1.0]]})
    return controller


def play(controller: Controller, plan: Plan, accepted: int, cost: float | None = None) -> None:
    """A round as the decoding loop tells of it."""
    took = controller.curve.round(plan.drafter, plan.depth, plan.length) if cost is None else cost
    controller.observe_cost(plan, plan.depth, accepted + 1, took)
    if plan.drafter is not None:
        controller.observe_acceptance(plan.drafter, plan.bucket, plan.depth, accepted)


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
        if depth is not None:
            best = max([0, *rooms.values()])
            assert (plan.depth > 0) == (min(best, limit) > 0)
        assert plan.why
        assert controller.last.why == plan.why
        play(controller, plan, min(run, plan.depth))


@given(offers, st.integers(0, 40))
def test_asking_twice_changes_nothing(what: list[Offer], limit: int) -> None:
    controller = made()
    first = controller.choose(what, 100, limit)
    state = _state(controller)
    assert controller.choose(what, 100, limit) == first
    assert _state(controller) == state


def test_a_good_drafter_is_used_deeper_than_a_poor_one() -> None:
    depths = []
    for bucket in (2, 7):
        depths.append(made().choose([Offer("ngram", 32, bucket)], 100, 50).depth)
    assert 0 <= depths[0] < depths[1]


@pytest.mark.parametrize(("gain", "depth"), [(0.0, 2), (0.01, 2), (0.04, 7)])
def test_of_depths_that_promise_nearly_the_same_it_takes_the_shallower(
    monkeypatch: pytest.MonkeyPatch, gain: float, depth: int
) -> None:
    controller = made()
    tokens = [1 + 0.8 * drafted for drafted in range(MAX_DEPTH + 1)]
    # As fast as at depth 2 everywhere, but for one token, and for depth 7, which gains a little.
    speed = dict.fromkeys(range(2, MAX_DEPTH + 1), 1.5) | {1: 1.2, 7: 1.5 * (1 + gain)}

    def rounds(drafter: str, depths: list[int], length: int) -> list[float]:
        return [tokens[at] / speed[at] for at in depths]

    monkeypatch.setattr(controller.acceptance, "expected", lambda *_: tokens)
    monkeypatch.setattr(controller.curve, "rounds", rounds)
    assert controller.choose([Offer("ngram", 32, 5)], 100, 50).depth == depth


def test_what_plain_costs_is_measured_first_and_now_and_then() -> None:
    controller = made(length=9000)
    offer = Offer("draft", 32, 7, 1)
    assert controller.choose([offer], 100, 50).depth == 0
    play(controller, controller.last, 0, cost=1.0)
    depths = []
    for _ in range(200):
        plan = controller.choose([offer], 100, 50)
        depths.append(plan.depth)
        play(controller, plan, plan.depth)
    assert 1 <= depths.count(0) <= 4


def test_an_unpipelined_plain_round_is_compared_with_pipelined_ones() -> None:
    controller = Controller(CostCurve({"draft": 0.05}), AcceptanceEstimate())
    offer, rounds = Offer("draft", 32, 7, 1), []
    for _ in range(500):
        plan = controller.choose([offer], 100, 50)
        prefetched = plan.depth == 0 and controller.pipelines
        early = bool(rounds) and rounds[-1] == "ahead"
        took = controller.curve.round("draft", plan.depth, 100)
        if plan.depth == 0:
            took = 1.0 if early or prefetched else 1.2
        controller.observe_cost(plan, plan.depth, plan.depth + 1, took, early + prefetched)
        rounds.append(
            "draft" if plan.depth else "ahead" if prefetched else "last" if early else "lone"
        )
    row = ["lone", *["ahead"] * (PIPELINED - 1), "last"]
    assert rounds[: PIPELINED + 1] == row
    assert rounds[PIPELINED + 1] == "draft"
    # Once that is known, one by itself does; a plain step has then taken 1.
    assert rounds.count("ahead") == SURE * (PIPELINED - 1)
    assert rounds.count("lone") > SURE
    assert controller.curve.plain.unpipelined == pytest.approx(1.2, abs=0.05)
    assert controller.curve.plain.newest == pytest.approx(1.0, abs=0.05)


def test_a_pipelined_run_ends_with_its_reply() -> None:
    controller = Controller(CostCurve({"draft": 0.05}), AcceptanceEstimate())
    offer = Offer("draft", 32, 7, 1)
    controller.observe_cost(controller.choose([offer], 100, 50), 0, 1, 1.0)
    assert controller.pipelines
    assert controller.choose([offer], 100, 50).depth == 0
    controller.reply_ended(9)
    assert controller.choose([offer], 100, 50).depth > 0


def test_a_drafter_that_does_not_pay_is_parked_and_probes_become_rare() -> None:
    controller, depths = made(), []
    for _ in range(600):
        plan = controller.choose([Offer("draft", 32, 1, 1)], 100, 50)
        depths.append(plan.depth)
        play(controller, plan, 0)
    early, late = depths[50:300], depths[350:]
    assert sum(depth > 0 for depth in late) < max(sum(depth > 0 for depth in early), 1) + 1
    assert sum(depth > 0 for depth in late) <= 0.1 * len(late)
    assert any(depth > 0 for depth in depths[64:])


def test_each_failed_probe_makes_the_next_one_rarer() -> None:
    controller = made()
    probes = []
    for at in range(6_000):
        plan = controller.choose([Offer("draft", 8, 0)], 100, 32)
        if plan.probe:
            probes.append(at)
        play(controller, plan, 0)
    gaps = [after - before for before, after in pairwise(probes)]
    assert len(gaps) > 4
    assert max(gaps[-2:]) > 3 * gaps[0]


def test_lucky_probes_save_up_no_more_than_plain_rounds_do() -> None:
    controller = made()
    offer = Offer("draft", 8, 0)
    for _ in range(600):
        play(controller, controller.choose([offer], 100, 32), 0)
    lucky = Plan("draft", 4, 100, expected=3.0, cost=1.5, probe=True)
    for _ in range(40):
        controller.observe_cost(lucky, 4, 5, 1.5)
    lost = 0.0
    while (plan := controller.choose([offer], 100, 32)).probe:
        lost += plan.loss
        play(controller, plan, 0)
    assert 0 < lost <= BUDGET


def test_a_parked_draft_model_is_back_when_its_text_turns_easy() -> None:
    controller = made()
    for _ in range(150):
        play(controller, controller.choose([Offer("draft", 32, 0, 1)], 100, 50), 0)
    depths = []
    for _ in range(150):
        plan = controller.choose([Offer("draft", 32, 7, 1)], 100, 50)
        depths.append(plan.depth)
        play(controller, plan, plan.depth)
    assert sum(depth > 0 for depth in depths[-50:]) >= 45


def test_a_lookup_is_used_within_a_few_rounds_of_a_longer_match() -> None:
    controller = made()
    for _ in range(100):
        plan = controller.choose([Offer("ngram", 32, 1)], 100, 50)
        play(controller, plan, 0)
        if plan.depth == 0:
            controller.observe_acceptance("ngram", 1, 1, 0)
    assert controller.choose([Offer("ngram", 32, 1)], 100, 50).depth == 0
    used = []
    for _ in range(12):
        plan = controller.choose([Offer("ngram", 32, 6)], 100, 50)
        used.append(plan.depth)
        play(controller, plan, plan.depth)
        if plan.depth == 0:
            controller.observe_acceptance("ngram", 6, 1, 1)
    assert used[-1] > 0
    assert sum(depth == 0 for depth in used) <= 6


def test_reading_the_text_pays_where_replies_are_long() -> None:
    offer = Offer("draft", 32, 6, unread=1500)
    long, short = made(length=1500), made(length=1500)
    for _ in range(20):
        long.reply_ended(400)
        short.reply_ended(6)
    assert long.choose([offer], 1500, 500).depth > 0
    assert short.choose([offer], 1500, 500).depth == 0
    assert long.choose([offer], 1500, 5).depth == 0
    plan = long.choose([offer], 1500, 500)
    assert 0 < plan.amortised < plan.cost


def test_a_draft_model_reads_the_prompt_with_the_target_where_the_reply_should_gain() -> None:
    controller = made(step=0.05)
    controller.curve.set_reading("draft", 0.01)
    near, far = Offer("draft", 32, 5, unread=50), Offer("draft", 32, 5, unread=9000)
    assert controller.should_prefill(near, 100, 200)
    assert not controller.should_prefill(far, 9000, 200)
    controller.reply_ended(20_000)
    assert controller.should_prefill(far, 9000, 20_000)
    assert not controller.should_prefill(far, 9000, 200)  # the reply can be no longer
    assert not made(step=2.0).should_prefill(near, 100, 200)  # drafting itself costs too much


def test_short_replies_do_not_keep_it_from_reading() -> None:
    controller = made(step=0.05)
    controller.curve.set_reading("draft", 0.01)
    for _ in range(50):
        controller.reply_ended(3)
    assert controller.should_prefill(Offer("draft", 32, 5, unread=300), 300, 200)
    assert not controller.should_prefill(Offer("draft", 32, 5, unread=300), 300, 3)


def test_at_a_depth_of_the_users_it_reads_whenever_there_is_room() -> None:
    controller = made(step=2.0)
    assert controller.should_prefill(Offer("draft", 32, 0, unread=9000), 9000, 200, depth=1)
    assert not controller.should_prefill(Offer("draft", 0, 0, unread=9000), 9000, 200, depth=1)
    assert not controller.should_prefill(Offer("draft", 32, 0, unread=9000), 9000, 0, depth=1)


def test_lookups_get_no_probes() -> None:
    controller = made()
    for _ in range(300):
        plan = controller.choose([Offer("ngram", 32, 0)], 100, 50)
        assert plan.depth == 0
        play(controller, plan, 0)


@pytest.mark.parametrize("cost", [4.0, 9.0])
def test_costs_that_rounds_show_outweigh_what_was_thought(cost: float) -> None:
    controller = made()
    plan = controller.choose([Offer("draft", 2, 6, 1)], 100, 50)
    assert plan.depth > 0
    for _ in range(12):
        plan = controller.choose([Offer("draft", 2, 6, 1)], 100, 50)
        play(controller, plan, plan.depth, cost=cost if plan.depth else 1.0)
    assert controller.choose([Offer("draft", 2, 6, 1)], 100, 50).depth == 0


def test_it_launches_ahead_where_that_saves_more_than_it_loses() -> None:
    controller = made()
    assert controller.pipelines
    # Good matches that rounds launched ahead keep missing.
    for _ in range(30):
        controller.choose([Offer("ngram", 32, 7)], 100, 50)
        controller.observe_cost(Plan(None, 0), 0, 1, 1.0, overlaps=2)
    assert not controller.pipelines


def _state(controller: Controller) -> dict[str, Any]:
    state = copy.deepcopy(vars(controller))
    curve, acceptance = state.pop("curve"), state.pop("acceptance")
    return {**state, "curve": curve.as_dict(), "acceptance": acceptance.as_dict()}


def test_what_a_plain_step_costs_is_measured_where_the_context_is_another() -> None:
    controller, offer = made(length=1500), Offer("draft", 32, 6)
    assert controller.choose([offer], 1500, 500).depth > 0
    probe = controller.choose([offer], 60, 500)
    assert probe.depth == 0
    assert "timing a plain step" in probe.why
    play(controller, probe, 0, 0.5)
    assert controller.choose([offer], 60, 500).depth > 0


def test_a_little_luck_does_not_draft_a_whole_pass() -> None:
    controller = made()
    for _ in range(3):
        plan = controller.choose([Offer("draft", 32, 7)], 10, 500)
        assert plan.depth <= 15
        play(controller, plan, plan.depth)


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


def test_a_round_is_charged_for_the_replay_that_may_follow() -> None:
    plans = []
    for replay in (0.0, 1.0):
        controller = made()
        controller.curve.restore(controller.curve.as_dict() | {"replays": [replay] * 99})
        controller.acceptance.restore({"draft 4 -1": [70, 100], "draft -1 -1": [70, 70]})
        plans.append(controller.choose([Offer("draft", 8, 4)], 10, 50, depth=3))
    free, dear = plans
    tokens = controller.acceptance.expected("draft", 4, 3)
    whole = tokens[3] - tokens[2]
    assert dear.cost - free.cost == pytest.approx(controller.curve.replay * (1 - whole))
    assert 0 < whole < 1


def test_a_dear_replay_makes_rounds_shallower_or_none() -> None:
    depths = []
    for replay in (0.0, 0.5, 4.0):
        controller = made()
        controller.curve.restore(controller.curve.as_dict() | {"replays": [replay] * 99})
        controller.acceptance.restore({"draft 4 -1": [70, 100], "draft -1 -1": [70, 70]})
        depths.append(controller.choose([Offer("draft", 8, 4)], 10, 50).depth)
    assert depths[0] >= depths[1] > depths[2] == 0
