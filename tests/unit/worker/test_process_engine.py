"""The client and the real child's loop, with a scripted engine in it."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
import threading
from pathlib import Path

import pytest
from children import alive, eventually
from scripted_engine import words

from macspec.events import Finished, Notice, Round, Text
from macspec.worker import (
    Call,
    Failed,
    Loaded,
    LoadProgress,
    PairChoice,
    ProcessEngine,
    ReplyRequest,
    Status,
    Tuned,
)
from macspec.worker.messages import Answer

LONG = ReplyRequest("slowly", max_tokens=100_000)
"""It is never over before a test is."""


def finished(call: Call) -> Finished:
    last = call.result(60)
    assert isinstance(last, Finished), last
    return last


def failed(call: Call, kind: str) -> str:
    last = call.result(60)
    assert isinstance(last, Failed), last
    assert last.kind == kind
    assert "\n" not in last.message
    return last.message


def status(engine: ProcessEngine) -> Status:
    answer = engine.status().result(60)
    assert isinstance(answer, Status), answer
    return answer


def until_round(call: Call, number: int) -> None:
    for event in call:
        if isinstance(event, Round) and event.tokens[0] >= number:
            return


def test_a_reply_streams_with_each_tokens_origin(engine: ProcessEngine) -> None:
    call = engine.reply(ReplyRequest("hello", max_tokens=7))
    events = list(call)
    tokens = [token for event in events if isinstance(event, Text) for token in event.tokens]
    assert [token.id for token in tokens] == list(range(7))
    assert [token.drafter for token in tokens] == [None, "scripted"] * 3 + [None]
    assert sum(isinstance(event, Round) for event in events) == 7
    assert call.text == finished(call).text == words(7)


def test_it_can_be_used_from_an_event_loop(engine: ProcessEngine) -> None:
    async def talk() -> list[Answer]:
        return [event async for event in engine.reply(ReplyRequest("hello", max_tokens=7))]

    events = asyncio.run(talk())
    assert "".join(event.delta for event in events if isinstance(event, Text)) == words(7)
    assert isinstance(events[-1], Finished)


def test_an_interrupt_ends_the_reply_and_keeps_what_came(engine: ProcessEngine) -> None:
    call = engine.reply(LONG)
    until_round(call, 5)
    engine.interrupt()
    last = finished(call)
    assert last.reason == "interrupted"
    assert last.text == call.text == words(len(last.token_ids))
    assert len(last.token_ids) >= 6
    assert finished(engine.reply(ReplyRequest("again", max_tokens=3))).text == words(3)


def test_a_change_holds_from_the_next_round_on(engine: ProcessEngine) -> None:
    call = engine.reply(LONG)
    until_round(call, 3)
    tuned = engine.tune(depth=6).result(60)
    assert isinstance(tuned, Tuned)
    assert not call.done
    assert status(engine).tuning.depth == 6
    engine.interrupt()
    depths = [event.depth for event in call if isinstance(event, Round)]
    assert sorted(depths) == depths
    assert depths[-1] == 6


def test_what_is_wrong_is_refused_and_changes_nothing(engine: ProcessEngine) -> None:
    assert "depth is 99" in failed(engine.tune(depth=99), "refused")
    assert "broken is broken" in failed(engine.load(PairChoice("broken")), "refused")
    assert finished(engine.reply(ReplyRequest("hello", max_tokens=3))).text == words(3)


def test_a_switch_asked_for_in_mid_reply_waits_for_its_end(engine: ProcessEngine) -> None:
    call = engine.reply(LONG)
    until_round(call, 2)
    switch = engine.load(PairChoice("other"))
    after = engine.reply(ReplyRequest("hello", max_tokens=2))
    assert status(engine).pair is not None
    assert [it.done for it in (call, switch, after)] == [False] * 3
    call.stop()
    assert finished(call).text == call.text
    loaded = switch.result(60)
    assert isinstance(loaded, Loaded)
    assert loaded.pair.target == "other"
    assert finished(after).text == words(2)


def test_a_load_can_be_stopped(engine: ProcessEngine) -> None:
    call = engine.load(PairChoice("endless"))
    for event in call:
        if isinstance(event, LoadProgress) and event.done > 3:
            call.stop()
            break
    failed(call, "stopped")
    assert (pair := status(engine).pair) is not None
    assert pair.target == "built-in"


def test_what_waits_can_be_stopped_too(engine: ProcessEngine) -> None:
    first, second = engine.reply(LONG), engine.reply(LONG)
    until_round(first, 1)
    second.stop()
    first.stop()
    finished(first)
    failed(second, "stopped")


@pytest.mark.parametrize("how", ["die", "kill"])
def test_the_client_survives_the_child(engine: ProcessEngine, how: str) -> None:
    engine.tune(depth=4).result(60)
    assert engine.load(PairChoice("other")).result(60)
    lost = engine.pid
    assert lost is not None
    call = engine.reply(ReplyRequest(f"slowly {how}", max_tokens=100_000))
    waiting = engine.load(PairChoice("third"))
    until_round(call, 2)
    if how == "kill":
        os.kill(lost, signal.SIGKILL)
    message = failed(call, "crashed")
    assert "SIGKILL" in message
    failed(waiting, "crashed")
    assert call.text == words(len(call.text.split()))
    assert len(call.text.split()) >= 3

    again = engine.reply(ReplyRequest("hello", max_tokens=3))
    events = list(again)
    assert isinstance(events[0], Notice)
    assert [event.pair.target for event in events if isinstance(event, Loaded)] == ["other"]
    assert finished(again).text == words(3)
    assert finished(again).depth == 4
    assert engine.pid not in (None, lost)
    assert not alive(lost)


def test_a_crash_while_switching_leaves_the_old_pair(engine: ProcessEngine) -> None:
    message = failed(engine.load(PairChoice("crash")), "crashed")
    assert "status 3 (the metal is bent)" in message
    again = engine.reply(ReplyRequest("hello", max_tokens=3))
    targets = [event.pair.target for event in again if isinstance(event, Loaded)]
    assert targets == ["built-in"]
    assert finished(again).text == words(3)


def test_an_unforeseen_error_is_told_and_its_words_stay_out_of_the_log(
    engine: ProcessEngine, tmp_path: Path
) -> None:
    call = engine.reply(ReplyRequest("fail secretly"))
    message = failed(call, "error")
    assert "RuntimeError" in message
    assert "secretly" in message
    assert call.text == words(3)
    assert finished(engine.reply(ReplyRequest("hello", max_tokens=3))).text == words(3)
    engine.close(60)
    log = (tmp_path / "state" / "engine.log").read_text()
    assert "RuntimeError" in log
    assert "secretly" not in log


def test_what_the_child_prints_goes_to_the_log_alone(
    engine: ProcessEngine, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert finished(engine.reply(ReplyRequest("print", max_tokens=5))).text == words(5)
    engine.close(60)
    log = tmp_path / "state" / "engine.log"
    for line in ("to standard output", "and below it", "to standard error", "closed in order"):
        assert line in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700
    assert capfd.readouterr() == ("", "")


def test_the_child_has_no_terminal_and_a_session_of_its_own(engine: ProcessEngine) -> None:
    pid = engine.pid
    assert pid is not None
    assert os.getsid(pid) == pid != os.getsid(0)


def test_closing_leaves_no_child_and_refuses_what_comes_after(engine: ProcessEngine) -> None:
    pid = engine.pid
    assert pid is not None
    call = engine.reply(LONG)
    until_round(call, 1)
    engine.close(60)
    assert not alive(pid)
    assert finished(call).text == call.text
    assert "closed" in failed(engine.reply(LONG), "refused")
    engine.close()


def test_a_child_that_does_not_listen_is_killed(engine: ProcessEngine) -> None:
    pid = engine.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    call = engine.reply(LONG)
    engine.close(0.1)
    assert not alive(pid)
    failed(call, "stopped")


def test_a_program_that_is_not_there_is_a_crash_with_a_reason(tmp_path: Path) -> None:
    engine = ProcessEngine(program=[str(tmp_path / "nothing")], log=tmp_path / "log")
    assert "could not be started (No such file" in failed(engine.load(PairChoice()), "crashed")
    assert "could not be started" in failed(engine.load(PairChoice()), "crashed")
    engine.close()


def test_an_older_child_says_so(tmp_path: Path) -> None:
    code = "import sys; from macspec.worker.child import main; main([*sys.argv[1:-1], 'old'])"
    engine = ProcessEngine(program=[sys.executable, "-c", code], log=tmp_path / "log")
    assert "macspec was updated" in failed(engine.load(PairChoice()), "crashed")
    engine.close()


def test_idle_time_is_used_until_the_next_request(engine: ProcessEngine) -> None:
    finished(engine.reply(ReplyRequest("hello", max_tokens=3)))
    assert eventually(lambda: int(status(engine).why.split()[0]) > 3)
    assert finished(engine.reply(ReplyRequest("hello", max_tokens=3)))
    before = int(status(engine).why.split()[0])
    assert eventually(lambda: int(status(engine).why.split()[0]) > before)


def test_requests_may_come_from_several_threads(engine: ProcessEngine) -> None:
    results: list[str] = []

    def talk(count: int) -> None:
        for _ in range(5):
            results.append(finished(engine.reply(ReplyRequest("hello", max_tokens=count))).text)
            engine.tune(depth=count).result(60)

    threads = [threading.Thread(target=talk, args=(count,)) for count in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(results) == sorted([words(count) for count in range(1, 5)] * 5)


def test_a_request_larger_than_a_pipe_gets_through(engine: ProcessEngine) -> None:
    turns = tuple({"role": "user", "content": "y" * 1000} for _ in range(1000))
    assert finished(engine.reply(ReplyRequest(turns, max_tokens=3))).text == words(3)
