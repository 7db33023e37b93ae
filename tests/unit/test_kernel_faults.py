"""No reply ends by a kernel: the text is as without the fault, and what ran is blamed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from failingkernels import MESSAGES, TIMEOUT, Failing
from tinymodels import noisy_folder, saved

from macspec import Sampling, Session, decode, load_pair
from macspec.errors import GpuLostError
from macspec.events import WENT_ON, Event, Finished, Notice, Prefilled, Round, Text
from macspec.inuse import InUse, died, in_flight
from macspec.kernels import Kernels
from macspec.models import Pair
from macspec.settings import Settings
from macspec.worker import Call, PairChoice, ProcessEngine, ReplyRequest, SharedReply
from macspec.worker.asked import Asked
from macspec.worker.engine import Engine
from macspec.worker.shared import Shared

SCRIPT = str(Path(__file__).with_name("failingkernels.py"))
ASK = "I need a hotel in London for three nights."
GREEDY, KEYED = Sampling(temperature=0), Sampling(0.8, seed=5)
HOW = {"max_tokens": 20, "learn": False}


def events_of(session: Session, **more: Any) -> list[Event]:
    return list(session.reply(ASK, **HOW, **more))


def check(events: list[Any], expected: Finished) -> None:
    """The reply is the expected one, and one line says what happened."""
    texts = [it for it in events if isinstance(it, Text)]
    assert isinstance(last := events[-1], Finished), last
    assert last.token_ids == tuple(it.id for text in texts for it in text.tokens)
    assert last.text == "".join(it.delta for it in texts) == expected.text
    assert (last.token_ids, last.reason) == (expected.token_ids, expected.reason)
    assert last.stats.tokens == len(last.token_ids)
    assert sum(isinstance(it, Prefilled) for it in events) == 1
    assert [it.message for it in events if isinstance(it, Notice)].count(WENT_ON) == 1


def blamed(faults: Path) -> list[Any]:
    return [json.loads(line) for line in faults.read_text().splitlines()]


@pytest.mark.parametrize("at", [1, 4])
@pytest.mark.parametrize("how", ["spoils", "unbuilt"])
@pytest.mark.parametrize(("method", "sampling"), [("off", GREEDY), ("draft", KEYED)])
def test_a_reply_goes_on_after_a_fault(
    small: Pair, tmp_path: Path, method: str, sampling: Sampling, how: str, at: int
) -> None:
    fixed = {"method": method, "depth": 3, "rule": "keyed"}
    expected = events_of(Session(small, kernels="off", **fixed), sampling=sampling)[-1]
    kernels = Failing(how, tmp_path / "faults", at)
    session = Session(small, kernels=kernels, **fixed)
    assert isinstance(expected, Finished)
    check(events_of(session, sampling=sampling), expected)
    assert blamed(tmp_path / "faults") == [["plain" if method == "off" else "chain"]]
    # The next reply knows nothing of it, and its caches are the new ones.
    again = events_of(session)[-1]
    assert isinstance(again, Finished)
    assert (again.token_ids, again.stats.cached_tokens > 0) == (expected.token_ids, True)


@pytest.mark.parametrize("how", ["suffers", "starves"])
def test_what_no_kernel_can_have_caused_blames_none(small: Pair, tmp_path: Path, how: str) -> None:
    expected = events_of(Session(small, kernels="off"), sampling=GREEDY)[-1]
    kernels = Failing(how, tmp_path / "faults")
    assert isinstance(expected, Finished)
    check(events_of(Session(small, kernels=kernels), sampling=GREEDY), expected)
    assert not (tmp_path / "faults").exists()


def test_a_pass_that_reads_the_text_again_teaches_no_cost(small: Pair) -> None:
    session = Session(small, method="draft", depth=3, kernels=Failing("spoils"))
    taught: list[float | None] = []
    intact = session.controller.observe_cost

    def observe_cost(plan: Any, drafted: int, committed: int, seconds: Any, *more: Any) -> None:
        taught.append(seconds)
        intact(plan, drafted, committed, seconds, *more)

    session.controller.observe_cost = observe_cost  # type: ignore[method-assign]
    rounds = [it for it in events_of(session, sampling=GREEDY) if isinstance(it, Round)]
    # The first three rounds were committed, and the fourth was spoiled.
    assert [at for at, it in enumerate(taught) if it is None] == [0, 3]
    assert [it.seconds for it in rounds][1:3] == taught[1:3]
    assert rounds[3].idle_seconds == 0


def test_marks_of_children_whose_parent_is_gone_are_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("macspec.inuse._folder", lambda: tmp_path)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    old, other = (tmp_path / f"{it}-5-0.running" for it in (ended.pid, os.getpid()))
    for path in (old, other):
        path.write_text(f"{tmp_path / 'faults'}\n+chain\n")
    kernels = InUse(["plain"], tmp_path / "faults")
    assert (old.exists(), other.exists()) == (False, True)
    assert in_flight(5)
    assert not died(5, -signal.SIGKILL)
    assert not other.exists()
    assert not (tmp_path / "faults").exists()
    kernels.note("plain")
    (own,) = tmp_path.glob("*.running")
    assert own.read_text().splitlines()[1:] == ["+plain"]


@pytest.mark.parametrize("name", ["qwen3_5", pytest.param("gemma3_text", marks=pytest.mark.slow)])
def test_states_and_windows_are_read_anew(name: str, tmp_path: Path) -> None:
    target = saved(name, tmp_path / "target")
    pair = load_pair(str(target), str(noisy_folder(target, tmp_path / "draft")), context=256)
    fixed = {"method": "draft", "depth": 3, "rule": "keyed"}
    expected = events_of(Session(pair, kernels="off", **fixed), sampling=KEYED)[-1]
    assert isinstance(expected, Finished)
    check(events_of(Session(pair, kernels=Failing("spoils"), **fixed), sampling=KEYED), expected)


@pytest.mark.parametrize("message", [TIMEOUT, MESSAGES["starves"]])
def test_a_fault_without_kernels_ends_the_reply_and_its_caches_are_not_trusted(
    small: Pair, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    kernels = Kernels()
    sessions = [Session(small, kernels=kernels) for _ in range(2)]
    expected = [events_of(session, sampling=GREEDY)[-1] for session in sessions]

    def failing(round: set[str]) -> None:
        raise RuntimeError(message)

    with monkeypatch.context() as patch:
        patch.setattr(kernels, "landed", failing)
        with pytest.raises(RuntimeError, match="Command buffer"):
            events_of(sessions[0], sampling=GREEDY)
    for session, before in zip(sessions, expected, strict=True):
        after = events_of(session, sampling=GREEDY)[-1]
        assert isinstance(after, Finished)
        assert isinstance(before, Finished)
        assert (after.token_ids, after.stats.cached_tokens) == (before.token_ids, 0)
    assert not kernels.retired


def test_what_a_fault_spoiled_is_given_to_no_constraint(small: Pair) -> None:
    """A grammar would not forgive a token that there is not."""
    kernels, spoiled = Failing("spoils", at=1000), small.vocabulary - 1
    seen: list[int] = []

    class Anything:
        def take(self, token: int, part: str) -> bool:
            return False

        def masked(self, logits: mx.array, drafted: list[int]) -> mx.array:
            seen.extend(drafted)
            return logits

    def draw(logits: mx.array, step: int) -> tuple[mx.array, None] | None:
        if kernels._retired:
            return None
        kernels.in_use.note("chain")
        kernels._spoiled = True
        return mx.array([spoiled], mx.uint32), None

    kernels.draw = lambda *given: draw  # type: ignore[method-assign]
    fixed: dict[str, Any] = {"method": "draft", "depth": 3}
    expected = events_of(Session(small, kernels="off", **fixed), sampling=GREEDY)[-1]
    assert isinstance(expected, Finished)
    session = Session(small, kernels=kernels, **fixed)
    check(events_of(session, sampling=GREEDY, constraint=Anything()), expected)
    assert spoiled not in seen != []


def test_a_margin_is_taken_again_after_a_fault(
    small: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Session(small, kernels="off").score_margin(ASK, [], [5, 6])
    kernels = Failing("spoils", tmp_path / "faults")

    def choice_scores(*given: Any) -> tuple[list[float], float]:
        scores, tolerance = intact(*given)
        if kernels._retired:
            return scores, tolerance
        kernels.in_use.note("plain")
        kernels._spoiled = True
        return [0.0] * len(scores), tolerance

    intact = decode.choice_scores
    monkeypatch.setattr(decode, "choice_scores", choice_scores)
    assert Session(small, kernels=kernels).score_margin(ASK, [], [5, 6]) == expected
    assert blamed(tmp_path / "faults") == [["plain"]]


def test_a_fault_when_idle_costs_the_next_reply_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = Failing("spoils", tmp_path / "faults", at=2)
    replies = []
    for own in (Kernels(), kernels):
        monkeypatch.setattr("macspec.worker.engine.kernels_for", lambda *_, own=own, **__: own)
        engine = Engine()
        engine.load(PairChoice(learn=False), lambda event: None)
        engine.tune({"sampling": {"temperature": 0}})
        try:
            for _ in engine.idle():
                pass
        except RuntimeError as error:
            engine.unexpected(error)
        replies.append(list(engine.reply(ReplyRequest(ASK, **HOW)))[-1])
        engine.close()
    assert isinstance(replies[0], Finished)
    assert replies[0].token_ids == replies[1].token_ids
    assert len(blamed(tmp_path / "faults")) == 1
    assert kernels._retired


def test_nothing_is_in_flight_after_a_step_of_idle_measuring(small: Pair) -> None:
    class Noting(Kernels):
        noted = 0

        def passing(self, *given: Any) -> Any:
            self.in_use.note("pass")
            self.noted += 1
            return super().passing(*given)

    kernels = Noting()
    assert not any(kernels.in_use.running for _ in Session(small, kernels=kernels).measure())
    assert kernels.noted > 0


def test_replies_that_take_turns_all_go_on_and_one_fault_is_counted_once(
    small: Pair, tmp_path: Path
) -> None:
    """What the others had in flight is not trusted either."""

    def replies(kernels: Kernels) -> dict[int, list[Any]]:
        it = Shared(Session(small, kernels=kernels), 2**40)
        seen: dict[int, list[Any]] = {call: [] for call in range(3)}
        for call in seen:
            request = ReplyRequest(({"role": "user", "content": ASK[call:]},), **HOW)
            it.begin(call, SharedReply(request), Settings("draft", 3, "keyed", KEYED))
        while (call := it.turn_of) is not None:
            if (finished := it.turn(lambda call, event: seen[call].append(event))) is not None:
                seen[call].append(finished)
        return seen

    expected = replies(Kernels())
    for call, events in replies(Failing("spoils", tmp_path / "faults", at=8)).items():
        check(events, expected[call][-1])
    assert blamed(tmp_path / "faults") == [["chain"]]


@pytest.mark.parametrize("rule", ["keyed", "block"])
def test_another_process_goes_on_from_what_is_committed(
    small: Pair, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    fixed = {"method": "draft", "depth": 3, "rule": rule}
    sampling = Sampling(0.8)
    asked = Asked(ReplyRequest(ASK, **HOW), Call(Finished), [])
    with monkeypatch.context() as patch:
        patch.setattr("macspec.decode.gpu_answers", lambda: False)
        patch.setattr("macspec.session.secrets.randbits", lambda bits: 5)
        session = Session(small, kernels=Failing("spoils", at=3), **fixed)
        taken = map(asked.take, session.reply(ASK, sampling, **HOW))
        with pytest.raises(GpuLostError):
            list(taken)
    command = asked.go_on()
    assert isinstance(command, ReplyRequest)
    assert command.committed is not None
    known = tuple(it.id for it in command.committed.tokens)
    session = Session(small, kernels="off", **fixed)
    for event in session.reply(ASK, sampling, committed=command.committed, **HOW):
        asked.take(event)
    events = asked.call.arrived()
    last = events[-1]
    assert isinstance(last, Finished)
    assert last.token_ids[: len(known)] == known != ()
    assert last.seed == command.committed.seed
    if rule == "keyed":
        again = Sampling(0.8, seed=last.seed)
        last = events_of(Session(small, kernels="off", **fixed), sampling=again)[-1]
    assert isinstance(last, Finished)
    check(events, last)


def test_a_reply_that_may_call_tools_is_not_gone_on_with() -> None:
    """Half a call may have been read; serve answers with an error then."""
    command = SharedReply(ReplyRequest(ASK), tools="[{}]")
    assert Asked(command, Call(Finished), []).go_on() is None


@pytest.mark.parametrize(
    "how", ["dies", *(pytest.param(it, marks=pytest.mark.slow) for it in ("loses", "hangs"))]
)
def test_the_engine_is_started_anew_and_the_reply_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("macspec.worker.watch.HUNG", 6.0)
    request, choice = ReplyRequest(ASK, **HOW), PairChoice(draft="built-in", learn=False)
    tuning: dict[str, Any] = {"sampling": {"temperature": 0}, "method": "draft", "depth": 3}
    inside = Engine()
    inside.load(choice, lambda event: None)
    inside.tune(tuning)
    *_, expected = inside.reply(request)
    inside.close()
    faults = tmp_path / "faults"
    program = (sys.executable, SCRIPT, how, str(faults))
    client = ProcessEngine(program=program, log=tmp_path / "engine.log")
    assert client.load(choice).result(120)
    assert client.tune(**tuning).result(60)
    first, call, status = client.pid, client.reply(request), client.status()
    events = list(call)
    assert isinstance(expected, Finished)
    check(events, expected)
    assert status.result(60)
    assert client.pid not in (None, first)
    assert blamed(faults) == [["chain"]]
    assert isinstance(client.reply(request).result(60), Finished)
    client.close()
