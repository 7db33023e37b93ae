"""The engine itself: switching pairs, and what is held in memory meanwhile."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from fakehub import Hub, serving

from macspec.errors import BadOptionError, ModelBrokenError, OutOfMemoryError
from macspec.events import Finished, Notice
from macspec.kernels import Kernels
from macspec.metal.self_check import Checking
from macspec.models import download
from macspec.models.machine import Pressure
from macspec.models.pair import Pair
from macspec.session import Session
from macspec.worker.engine import Engine
from macspec.worker.messages import (
    Answer,
    LoadProgress,
    MeasuredEnergy,
    PairChoice,
    ReplyRequest,
)
from macspec.worker.registry import Registry

POCKET = Path(str(files("macspec.assets"))) / "pocket"
TARGET, DRAFT = str(POCKET / "target"), str(POCKET / "draft")

BOTH = PairChoice(TARGET, DRAFT, learn=False)
ALONE = PairChoice(TARGET, learn=False)
SMALL = PairChoice(DRAFT, learn=False)
HEAD = PairChoice(TARGET, str(Path(__file__).parents[1] / "heads" / "trained" / "mtp"), learn=False)
ASK = ReplyRequest("I need a hotel in London for three nights.", max_tokens=8)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "engines")


@pytest.fixture
def levels() -> list[Any]:
    """The levels of memory pressure, the newest last."""
    return ["normal"]


@pytest.fixture
def engine(registry: Registry, levels: list[Any]) -> Iterator[Engine]:
    made = Engine(registry, lambda: Pressure(levels[-1], None))
    made.tune({"sampling": {"temperature": 0}})
    yield made
    made.close()


def ignore(event: Answer) -> None:
    pass


def talk(engine: Engine, request: ReplyRequest = ASK) -> Finished:
    *_, last = engine.reply(request)
    assert isinstance(last, Finished)
    return last


def held(engine: Engine) -> Pair:
    assert engine.session is not None
    return engine.session.pair


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the bytes that the machine gives."""

    def give(size: float) -> None:
        for module in ("macspec.models.memory", "macspec.worker.engine"):
            monkeypatch.setattr(f"{module}.device_limit", lambda: int(size))

    return give


@pytest.fixture
def at_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Does something whenever weights are about to be read."""
    read = Pair.read

    def hook(action: Callable[[], None]) -> None:
        def reading(pair: Pair, *arguments: Any) -> None:
            action()
            read(pair, *arguments)

        monkeypatch.setattr(Pair, "read", reading)

    return hook


def failing(error: Exception, times: int = 1) -> Callable[[], None]:
    left = [error] * times

    def fail() -> None:
        if left:
            raise left.pop()

    return fail


def test_loading_reports_how_far_it_is(engine: Engine) -> None:
    events: list[Answer] = []
    loaded = engine.load(BOTH, events.append)
    reading = [event for event in events if isinstance(event, LoadProgress) and event.total]
    assert reading[-1].done == reading[-1].total == loaded.pair.weights
    assert [event.done for event in reading] == sorted(event.done for event in reading)
    assert loaded.pair.planned == held(engine).plan.total
    assert engine.load(BOTH, ignore).kept_cache


def test_before_the_first_round_nothing_is_claimed_of_it(engine: Engine) -> None:
    engine.load(BOTH, ignore)
    assert "any drafter at a depth chosen each round" in engine.status().why
    engine.tune({"depth": 4})
    assert "at depth 4" in engine.status().why
    engine.tune({"method": "off"})
    assert engine.status().why == "not drafting: speculation is off"
    engine.tune({"method": "auto", "depth": "auto"})
    talk(engine)
    assert "yet" not in engine.status().why


def test_whether_reasoning_can_be_switched_is_known(engine: Engine) -> None:
    assert not engine.load(BOTH, ignore).pair.thinks


def test_another_draft_model_leaves_the_target_what_it_has_read(engine: Engine) -> None:
    engine.load(ALONE, ignore)
    first = talk(engine)
    target = held(engine).target
    for choice in (BOTH, ALONE, BOTH):
        loaded = engine.load(choice, ignore)
        assert loaded.kept_cache
        assert held(engine).target is target
        assert (held(engine).draft is None) == (choice.draft is None)
        again = talk(engine)
        assert again.stats.cached_tokens == again.stats.prompt_tokens - 1
        assert again.token_ids == first.token_ids
    engine.tune({"method": "draft", "depth": 3})
    assert talk(engine).stats.drafted > 0


def test_a_method_that_the_new_pair_lacks_becomes_auto(engine: Engine) -> None:
    engine.load(BOTH, ignore)
    engine.tune({"method": "draft"})
    events: list[Answer] = []
    engine.load(ALONE, events.append)
    assert any(isinstance(event, Notice) and "auto again" in event.message for event in events)
    assert engine.status().tuning.method == "auto"
    with pytest.raises(BadOptionError, match="no draft model"):
        engine.tune({"method": "draft"})


@pytest.mark.parametrize("choice", [SMALL, ALONE], ids=["target", "draft"])
@pytest.mark.parametrize("level", ["normal", "warning"])
def test_a_failed_switch_leaves_the_old_pair_working(
    engine: Engine,
    at_reading: Callable[[Callable[[], None]], None],
    choice: PairChoice,
    levels: list[Any],
    level: str,
) -> None:
    engine.load(BOTH, ignore)
    first = talk(engine)
    levels.append(level)
    at_reading(failing(ModelBrokenError("the disk is gone")))
    with pytest.raises(ModelBrokenError, match="the disk is gone"):
        engine.load(choice, ignore)
    assert engine.status().pair is not None
    assert engine.status().kernels.startswith("MLX")
    again = talk(engine)
    assert again.token_ids == first.token_ids
    kept = level == "normal" or choice is ALONE
    assert (again.stats.cached_tokens > 0) == kept
    assert held(engine).draft is not None
    engine.load(choice, ignore)
    assert talk(engine).token_ids


class CheckedKernels(Kernels):
    """Of which one has failed, and others wait."""

    def __init__(self) -> None:
        super().__init__(fallback="1 kernel failed")
        self.steps = 0

    def idle(self) -> Iterator[None]:
        for _ in range(2):
            self.steps += 1
            yield


def test_a_self_check_of_kernels_is_reported_and_goes_on_when_idle(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = CheckedKernels()

    def checked(
        pair: Pair, mode: str, report: Callable[[Checking], None], *, kv_bits: int | None
    ) -> Kernels:
        for done in range(3):
            report(Checking(done, 3))
        return kernels

    monkeypatch.setattr("macspec.worker.engine.kernels_for", checked)
    events: list[Answer] = []
    engine.load(SMALL, events.append)
    checking = Notice("checking kernels on this Mac, once and after each update")
    assert events.count(checking) == 1
    at = events.index(checking)
    assert events[at + 1 :] == [
        *(LoadProgress("checking", done, 3) for done in range(3)),
        Notice("1 kernel failed"),
    ]
    for _ in engine.idle():
        pass
    assert kernels.steps == 2

    def stopping(event: Answer) -> None:
        if isinstance(event, LoadProgress) and event.stage == "checking":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.load(BOTH, stopping)
    assert talk(engine).token_ids, "the old pair still works"


def test_gates_and_plan_come_before_anything_is_let_go(
    engine: Engine, room: Callable[[float], None], tmp_path: Path
) -> None:
    engine.load(BOTH, ignore)
    session = engine.session
    with pytest.raises(ModelBrokenError):
        engine.load(PairChoice(str(tmp_path)), ignore)
    room(1000)
    with pytest.raises(OutOfMemoryError, match="the target needs"):
        engine.load(SMALL, ignore)
    assert engine.session is session


@pytest.mark.parametrize(
    ("share", "level", "together"),
    [(3.0, "normal", True), (1.05, "normal", False), (3.0, "warning", False)],
)
def test_two_targets_are_in_memory_only_if_they_fit(
    engine: Engine,
    at_reading: Callable[[Callable[[], None]], None],
    room: Callable[[float], None],
    levels: list[Any],
    share: float,
    level: str,
    together: bool,
) -> None:
    engine.load(BOTH, ignore)
    talk(engine)
    room(share * held(engine).plan.total)
    levels.append(level)
    old = weakref.ref(held(engine).target.module)
    there: list[bool] = []
    at_reading(lambda: there.append(old() is not None))
    engine.load(SMALL, ignore)
    assert there == [together]
    assert old() is None


def test_an_old_draft_model_goes_before_a_new_one_where_memory_is_short(
    engine: Engine,
    at_reading: Callable[[Callable[[], None]], None],
    levels: list[Any],
) -> None:
    engine.load(BOTH, ignore)
    first = talk(engine)
    levels.append("critical")
    draft = held(engine).draft
    assert draft is not None
    old = weakref.ref(draft.module)
    del draft
    there: list[bool] = []
    at_reading(lambda: there.append(old() is not None))
    events: list[Answer] = []
    loaded = engine.load(PairChoice(TARGET, TARGET, learn=False), events.append)
    assert loaded.kept_cache
    assert there == [False]
    assert any(isinstance(event, Notice) and "memory is low" in event.message for event in events)
    assert talk(engine).token_ids == first.token_ids


def test_what_was_read_of_a_failed_pair_is_gone_before_the_old_one_comes_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, room: Callable[[float], None]
) -> None:
    engine.load(BOTH, ignore)
    room(1.05 * held(engine).plan.total)
    pairs: list[weakref.ref[Any]] = []
    there: list[bool] = []
    read = Pair.read

    def reading(pair: Pair, *arguments: Any) -> None:
        there.extend(other() is not None for other in pairs)
        pairs.append(weakref.ref(pair.target.module))
        read(pair, *arguments)
        if len(pairs) == 1:
            raise ModelBrokenError("the disk is gone")

    monkeypatch.setattr(Pair, "read", reading)
    with pytest.raises(ModelBrokenError):
        engine.load(SMALL, ignore)
    assert there == [False]
    assert talk(engine).token_ids


def test_where_even_the_old_pair_is_lost_both_reasons_are_told(
    engine: Engine,
    at_reading: Callable[[Callable[[], None]], None],
    room: Callable[[float], None],
) -> None:
    engine.load(BOTH, ignore)
    room(1.05 * held(engine).plan.total)
    at_reading(failing(ModelBrokenError("the disk is gone"), times=2))
    with pytest.raises(ModelBrokenError, match="disk is gone; the previous pair could not"):
        engine.load(SMALL, ignore)
    assert engine.status().pair is None
    with pytest.raises(BadOptionError, match="no model is loaded"):
        engine.reply(ASK)
    engine.load(BOTH, ignore)
    assert talk(engine).token_ids


def test_a_load_can_be_ended_at_any_report(engine: Engine) -> None:
    class EnoughError(Exception):
        pass

    engine.load(BOTH, ignore)
    seen: list[Answer] = []
    Engine(Registry(Path("/nonexistent"))).load(SMALL, seen.append)
    for number in range(len(seen)):
        left = [None] * number

        def report(event: Answer, left: list[None] = left) -> None:
            if not left:
                raise EnoughError
            left.pop()

        with pytest.raises(EnoughError):
            engine.load(SMALL, report)
        assert held(engine).draft is not None
        assert talk(engine).token_ids


def test_other_engines_are_told_of_and_named(
    engine: Engine, registry: Registry, tmp_path: Path, room: Callable[[float], None]
) -> None:
    engine.load(BOTH, ignore)
    planned = held(engine).plan.total
    (running,) = Registry(tmp_path / "engines").others()
    assert (running.pair, running.planned) == (f"{TARGET} + {DRAFT}", planned)
    room(1.1 * planned)
    second = Engine(Registry(tmp_path / "engines"))
    with pytest.raises(OutOfMemoryError, match=rf"process {running.pid} .*{TARGET}.*close one"):
        second.load(PairChoice(TARGET, DRAFT, context=2048), ignore)
    engine.close()
    assert registry.others() == Registry(tmp_path / "engines").others() == []
    second.load(BOTH, ignore)
    assert [running.planned for running in registry.others()] == [planned]
    second.close()


def test_what_is_not_here_is_downloaded_first_and_can_be_stopped(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "CHUNK", 64 * 1024)
    monkeypatch.setattr(download, "INTERVAL", 0.0)
    hub = Hub()
    hub.add("owner/draft", POCKET / "draft")
    choice = PairChoice("owner/draft", learn=False)
    with serving(hub, tmp_path / "cache", monkeypatch):
        engine.load(BOTH, ignore)

        def until_half(event: Answer) -> None:
            if isinstance(event, LoadProgress) and event.total and event.done > event.total / 2:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            engine.load(choice, until_half)
        assert held(engine).draft is not None
        events: list[Answer] = []
        assert engine.load(choice, events.append).pair.target == "owner/draft"
    fetched = [
        event
        for event in events
        if isinstance(event, LoadProgress) and event.stage == "downloading"
    ]
    assert {event.model for event in fetched} == {"owner/draft"}
    assert fetched[0].done > fetched[0].total / 3
    assert fetched[-1].done == fetched[-1].total == hub.size("owner/draft")
    assert talk(engine).token_ids


def test_a_change_is_made_whole_or_not_at_all(engine: Engine) -> None:
    engine.load(ALONE, ignore)
    before = engine.status().tuning
    for wrong in (
        {"depth": 2, "rule": "none"},
        {"depth": 2, "method": "draft"},
        {"depth": 2, "sampling": {"warmth": 1}},
        {"depth": 2, "sampling": {"temperature": -1}},
        {"deepness": 2},
    ):
        with pytest.raises(BadOptionError):
            engine.tune(wrong)
        assert engine.status().tuning == before
        assert engine.session is not None
        assert engine.session.depth == "auto"
    engine.tune({"depth": 2, "sampling": {"top_k": 5, "logit_bias": [[3, 1.5]]}})
    assert engine.session.depth == 2
    assert engine.session.sampling.logit_bias == ((3, 1.5),)
    assert (engine.session.sampling.temperature, engine.session.sampling.top_k) == (0, 5)


def steps_known(engine: Engine) -> dict[str, float]:
    assert engine.session is not None
    costs: dict[str, Any] = engine.session.controller.curve.as_dict()
    return costs["reading"] | {str(it[:4]): len(it[4]) for it in costs["rounds"]}


def rest(engine: Engine, known: dict[str, float]) -> None:
    """Be idle until something else is known; one idle moment may be too short on a busy machine."""
    while steps_known(engine) == known:
        for _ in engine.idle():
            if steps_known(engine) != known:
                break


def test_what_replies_took_is_learned_for_the_objective(engine: Engine) -> None:
    engine.load(ALONE, ignore)
    engine.tune({"objective": "energy"})
    session = engine.session
    assert session is not None
    assert session.objective == "energy"
    status = engine.note_energy(MeasuredEnergy(40.0, (("draft", 2, 2.0),)))
    assert status.tuning.objective == "energy"
    assert session.controller.watts.of("draft", 2) == 20
    with pytest.raises(BadOptionError, match="choose from speed, energy"):
        engine.tune({"objective": "silence"})
    assert session.objective == "energy"


def test_idle_steps_measure_and_change_nothing_that_is_said(engine: Engine) -> None:
    assert list(engine.idle()) == []
    engine.load(BOTH, ignore)
    rest(engine, {})
    assert engine.status().cached_tokens == 0
    first = talk(engine)
    rest(engine, steps_known(engine))
    assert talk(engine).token_ids == first.token_ids


def test_what_was_learned_is_kept_for_the_next_time(registry: Registry) -> None:
    choice = PairChoice(TARGET)
    first = Engine(registry)
    first.load(choice, ignore)
    rest(first, {})
    first.close()
    second = Engine(registry)
    second.load(choice, ignore)
    assert steps_known(second) == steps_known(first)
    second.close()


def test_another_target_is_not_for_this_session(pocket: Pair) -> None:
    with pytest.raises(ValueError, match="keeps its target"):
        Session(pocket).change_draft(replace(pocket, target=replace(pocket.target)))


@pytest.mark.parametrize("together", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_target_draft_and_head_change_in_mid_reply(
    engine: Engine, room: Callable[[float], None], together: bool
) -> None:
    """Each reply is the one that its target writes alone, and no head outlives its pair."""
    plain = {}
    for choice in (ALONE, SMALL):
        engine.load(choice, ignore)
        plain[choice.target] = talk(engine).token_ids
    told: list[Answer] = []
    if not together:
        engine.load(HEAD, ignore)
        room(1.1 * held(engine).plan.total)
    for choice in (HEAD, BOTH, HEAD, SMALL, HEAD):
        engine.load(choice, told.append)
        head = held(engine).head
        assert (head is None) == (choice != HEAD)
        drafters = engine.session.decoder.portfolio.drafters if engine.session else {}
        assert {"mtp", "draft"} & drafters.keys() == (
            {"mtp"} if choice == HEAD else {"draft"} if choice == BOTH else set()
        )
        assert talk(engine).token_ids == plain[choice.target]
        if choice == HEAD:
            engine.tune({"method": "mtp", "depth": 2})
            assert talk(engine).stats.accepted > 0
        running = engine.reply(replace(ASK, messages="Tell me about the sea."))
        for _ in range(6):
            next(running)
        gone = weakref.ref(held(engine).head) if held(engine).head else None
        del head
        if gone is not None:
            engine.load(ALONE, told.append)
            assert gone() is None
    said = "this pair has no mtp head; the method is auto again"
    assert any(isinstance(it, Notice) and it.message == said for it in told)
