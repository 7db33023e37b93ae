"""The arms with a small pair: the same work, counted the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_arms import costs_of

from macspec.bench.arms import ArmFactory, ArmName
from macspec.bench.costs import curve_of, measure_costs
from macspec.bench.macspecarm import ConcurrentArm, DecodeConfig, MacspecArm, SplitDecoder, profile
from macspec.bench.mlxlm import MlxLmArm, count_passes
from macspec.bench.questions import Arm, Question, ready, with_later_turns
from macspec.bench.sample import ReplyRecorder, rows_of
from macspec.bench.tasks import Task
from macspec.control import CostCurve
from macspec.control.cost import ROWS
from macspec.errors import BadOptionError
from macspec.models import Pair
from macspec.sampling import Sampling

GREEDY = Sampling(temperature=0, seed=3)
WARM = Sampling(temperature=0.8, seed=3)

CHAT = Task("chat-1", "chat", ({"role": "user", "content": "Hello, how are you?"},), 12)
LONG = replace(CHAT, max_tokens=20)
FORCED = replace(CHAT, id="forced-1", forced="One two three four five six seven eight nine ten.")


CHEAP = costs_of(dict.fromkeys(ROWS, 1.0), 0.1, 0.01)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rounds cost is measured once."""
    monkeypatch.setattr("macspec.learned.REPEATS", 1)
    monkeypatch.setattr("macspec.learned.SERIES", 2)
    monkeypatch.setattr("macspec.learned.PIPELINED", 2)
    monkeypatch.setattr("macspec.control.cost.MODEL_DEPTHS", {})
    monkeypatch.setattr("macspec.control.cost.SAMPLES", 1)


@pytest.fixture
def question(small: Pair) -> Question:
    (found,), left_out = ready([CHAT], small)
    assert left_out == 0
    return found


def made(small: Pair, name: str) -> Any:
    return ArmFactory(small).make(ArmName.parse(name))


@pytest.mark.parametrize(
    ("name", "sampling"),
    [
        *(("plain", it) for it in (GREEDY, WARM)),
        *(("mlx-lm-draft@3", it) for it in (GREEDY, WARM)),
        *((it, WARM) for it in ("auto", "draft@4", "draft@3:keyed", "ngram", "mlx-lm")),
    ],
)
def test_counts_add_up(small: Pair, question: Question, name: str, sampling: Sampling) -> None:
    arm: Arm = made(small, name)
    written = arm.write(question, sampling, False)
    stats = written.stats
    assert len(written.ids) == stats.tokens == question.max_tokens
    assert stats.cached_tokens == 0
    assert stats.prompt_tokens == len(question.ids)
    assert sum(written.drafted_at) == stats.drafted
    assert sum(written.accepted_at) == stats.accepted
    assert stats.tokens == stats.passes + stats.accepted or written.reason == "length"
    rounds = written.rounds.values()
    assert sum(it.count for it in rounds) == stats.passes - 1
    assert 0 < sum(it.tokens for it in rounds) < stats.tokens


def test_every_reply_reads_its_whole_prompt(small: Pair, question: Question) -> None:
    arm = made(small, "draft@4")
    first, second = (arm.write(question, GREEDY, True) for _ in range(2))
    assert second.stats.cached_tokens == 0
    assert first.ids == second.ids
    assert first.rounds.keys() == second.rounds.keys()


def test_greedy_text_is_the_same_in_every_arm(small: Pair, question: Question) -> None:
    names = ["plain", "auto", "draft@4", "mlx-lm", "mlx-lm-draft@2"]
    written = [made(small, name).write(question, GREEDY, True) for name in names]
    assert len({it.ids for it in written}) == 1
    assert len({it.text for it in written}) == 1
    assert len({it.reason for it in written}) == 1


def test_keyed_text_is_plains_at_any_temperature(small: Pair, question: Question) -> None:
    names = ["plain", "auto:keyed", "draft@4:keyed"]
    written = [made(small, name).write(question, WARM, False).ids for name in names]
    assert len(set(written)) == 1


def test_a_seed_repeats_mlx_lms_text(small: Pair, question: Question) -> None:
    arm = made(small, "mlx-lm-draft@2")
    hot = Sampling(temperature=5, seed=3)
    texts = [arm.write(question, hot, False).ids for _ in range(2)]
    assert texts[0] == texts[1]
    assert arm.write(question, replace(hot, seed=4), False).ids != texts[0]


def test_the_end_of_text_is_respected_or_ignored(small: Pair) -> None:
    (question,), _ = ready([LONG], small)
    for name in ("plain", "mlx-lm", "mlx-lm-draft@2"):
        arm = made(small, name)
        assert arm.write(question, GREEDY, True).reason == "end"
        assert len(arm.write(question, GREEDY, False).ids) == LONG.max_tokens
    assert small.stop_ids


@pytest.mark.parametrize("name", ["plain", "auto", "mlx-lm", "mlx-lm-draft@2"])
def test_a_recorded_answer_is_decoded_along(small: Pair, name: str) -> None:
    (question,), _ = ready([FORCED], small)
    assert question.forced is not None
    assert made(small, name).write(question, WARM, True).ids == question.forced


def test_mlx_lm_is_prepared_at_its_best_depth(
    small: Pair, question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("macspec.bench.mlxlm.DEPTHS", (1, 2))
    arm = MlxLmArm("mlx-lm-draft", small, depth=None)
    arm.prepare([question], GREEDY, True)
    about = arm.describe()
    assert about["num_draft_tokens"]["0"] in (1, 2)
    assert set(about["tried_tokens_per_s"]["0"]) == {"1", "2"}


def test_mlx_lm_takes_the_built_in_draft_model(small: Pair) -> None:
    arm = ArmFactory(replace(small, draft=None)).make(ArmName.parse("mlx-lm-draft@2"))
    assert arm.name == "mlx-lm-draft@2"


def test_mlx_lms_draft_needs_a_draft_model(small: Pair, tmp_path: Path) -> None:
    alone = replace(small, target=replace(small.target, path=tmp_path), draft=None)
    with pytest.raises(BadOptionError, match="mlx-lm-draft@2 needs a draft model"):
        ArmFactory(alone).make(ArmName.parse("mlx-lm-draft@2"))


def passes_of(drafted: Sequence[bool], depth: int, limit: int) -> ReplyRecorder:
    """A stream of tokens a second apart, of which it is known whether each was drafted."""
    recorder = ReplyRecorder()
    stream = [(float(number), it) for number, it in enumerate(drafted, 1)]
    count_passes(recorder, stream, depth, limit)
    return recorder


def test_mlx_lms_passes_are_found_in_its_stream() -> None:
    recorder = passes_of([False, True, True, False, True, False], depth=2, limit=20)
    assert recorder.counter.passes == 3
    assert recorder.counter.drafted_at == [3, 3]
    assert recorder.counter.accepted_at == [2, 1]
    # All tokens of a pass are there when its first one is.
    assert recorder.last == 5.0


def test_a_pass_that_the_end_cuts_counts_what_was_emitted() -> None:
    recorder = passes_of([False, True, True], depth=4, limit=20)
    assert recorder.counter.passes == 2
    assert recorder.counter.drafted_at == [2, 2, 1, 1]
    assert recorder.counter.accepted_at == [1, 1, 0, 0]


def test_mlx_lm_drafts_no_further_than_the_limit() -> None:
    recorder = passes_of([False] * 3, depth=4, limit=5)
    assert recorder.counter.drafted_at == [3, 3, 3, 2]


def test_what_does_not_fit_is_left_out(small: Pair) -> None:
    long = replace(CHAT, id="long-1", max_tokens=small.context)
    questions, left_out = ready([CHAT, long], small)
    assert ([it.id for it in questions], left_out) == (["chat-1"], 1)
    assert ready([long], small, most=8)[1] == 0
    with pytest.raises(BadOptionError, match="none of the 1 tasks fits"):
        ready([long], small)


def test_only_recorded_answers_go_beyond_what_the_target_was_made_for(small: Pair) -> None:
    short = replace(small, target=replace(small.target, context=16))
    questions, left_out = ready([CHAT, FORCED], short)
    assert ([it.id for it in questions], left_out) == (["forced-1"], 1)
    written = made(short, "auto").write(questions[0], GREEDY, True)
    assert written.ids == questions[0].forced
    asked = replace(questions[0], task=replace(FORCED, then=("Go on.",)))
    (whole,) = with_later_turns([asked], short, made(short, "plain"))
    assert whole.id == "forced-1"


def test_later_turns_get_the_same_history_in_every_arm(small: Pair) -> None:
    (question,), _ = ready([replace(CHAT, then=("For three, please.",))], small)
    plain = made(small, "plain")
    first, second = with_later_turns([question], small, plain)
    assert second.id == "chat-1/2"
    said = second.task.messages
    assert [it["role"] for it in said] == ["user", "assistant", "user"]
    assert said[1]["content"] == plain.write(first, GREEDY, True).text


def test_costs_are_measured_and_predict(small: Pair, question: Question) -> None:
    *_, costs = measure_costs(small, [question])
    passes = {rows: cost for rows, _, cost in costs["passes"]}
    assert {*passes} >= {2, 3, 4, 5, 8, 16, 32}
    assert all(cost > 0 for cost in passes.values())
    assert costs["steps"]["draft"] > 0
    known = curve_of(costs)
    assert known.as_dict()["steps"] == costs["steps"]
    arm = MacspecArm("auto", small, DecodeConfig(), costs=costs)
    curve = arm.session(GREEDY, True).controller.curve
    for rows in (2, 5, 8):
        assert curve.round("", rows - 1, len(question.ids)) == pytest.approx(passes[rows])


def test_several_sessions_write_at_once(small: Pair, question: Question) -> None:
    others = [replace(question, id=f"chat-{number}") for number in range(2, 4)]
    arm = ConcurrentArm("auto/2", small, 2, DecodeConfig(), costs=CHEAP)
    arm.prepare([question, *others], GREEDY, True)
    written = arm.write(question, GREEDY, True)
    assert written.stats.tokens >= question.max_tokens
    assert written.stats.decode_tokens_per_s is not None
    assert written.stats.itl_ms_median is not None
    assert arm.describe()["sessions_at_once"] == 2


@pytest.mark.parametrize("trees", [True, False])
def test_trees_beside_chains_alone(
    pocket: Pair, trees: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CostCurve, "observe", lambda *_, **__: None)
    (question,), _ = ready([LONG], pocket)
    name = ArmName.parse("draft:keyed" + ("" if trees else "+chains"))
    arm = ArmFactory(pocket, costs=CHEAP).make(name)
    arm.prepare([question], WARM, False)
    written = arm.write(question, WARM, False)
    branched = [kind for kind in written.rounds if kind[0] == "draft+"]
    assert bool(branched) == arm.describe()["trees"] == trees
    assert all(rows_of(kind) == kind[1] + 2 for kind in branched)
    assert written.ids == made(pocket, "plain").write(question, WARM, False).ids


@pytest.mark.parametrize("name", ["auto+kv8", "draft+draft4"])
def test_fewer_bits(small: Pair, question: Question, name: str) -> None:
    before = small.draft
    written = made(small, name).write(question, GREEDY, True)
    assert written.stats.drafted > 0
    assert small.draft is before


def test_a_profile_splits_its_rounds(small: Pair, question: Question) -> None:
    split = profile(small, DecodeConfig("draft", 4), [question, question], WARM)
    parts = split["draft_ms"], split["verify_ms"], split["host_ms"]
    assert split["rounds"] > 0
    assert min(parts) > 0
    assert sum(parts) == pytest.approx(split["round_ms"])
    assert profile(small, DecodeConfig("off"), [question], GREEDY)["draft_ms"] < parts[1]


def test_a_profiled_reply_is_the_same_text(small: Pair, question: Question) -> None:
    texts = []
    for split in (False, True):
        session = DecodeConfig("draft", 4, "keyed").session(small)
        if split:
            session.decoder = SplitDecoder(session.decoder, None)
        list(session.reply(question.asked, WARM, max_tokens=12))
        assert session.finished is not None
        texts.append(session.finished.token_ids)
    assert texts[0] == texts[1]
