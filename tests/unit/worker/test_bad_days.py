"""An engine that hangs, is stopped or talks nonsense: told and ended, and no text is lost."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from children import alive, eventually
from hostile import no_descriptors
from scripted_engine import NOISE, words

from macspec.events import Finished, Notice, Round
from macspec.worker import Call, Failed, PairChoice, ProcessEngine, ReplyRequest

ENDLESS = ReplyRequest("slowly", max_tokens=100_000)
Shorten = Callable[..., None]


def goes_on(engine: ProcessEngine) -> None:
    """The next prompt works."""
    call = engine.reply(ReplyRequest("hello", max_tokens=3))
    assert isinstance(call.result(60), Finished)
    assert call.text == words(3)


def failed(call: Call, kind: str = "crashed") -> str:
    last = call.result(60)
    assert isinstance(last, Failed), last
    assert last.kind == kind
    assert "unexpected" not in last.message
    return last.message


def kept(call: Call) -> None:
    """Nothing of what was said is lost or doubled."""
    assert call.text == words(len(call.text.split()))


def says(call: Call, text: str) -> bool:
    return call.text == text


def until(call: Call, text: str) -> None:
    for event in call:
        if isinstance(event, Notice) and text in event.message:
            return
    pytest.fail(f"it ended without {text}")


def streaming(engine: ProcessEngine) -> tuple[Call, int]:
    call, pid = engine.reply(ENDLESS), engine.pid
    assert pid is not None
    for event in call:
        if isinstance(event, Round):
            return call, pid
    pytest.fail("it ended")


def test_a_load_that_hangs_is_told_and_can_be_cancelled(
    engine: ProcessEngine, impatient: Shorten
) -> None:
    impatient("LOADING", "OBEYED")
    pid = engine.pid
    call = engine.load(PairChoice("hang"))
    until(call, "loading takes longer than expected")
    call.stop()
    assert "it did not answer and was ended" in failed(call)
    assert pid is not None
    assert not alive(pid)
    goes_on(engine)


def test_a_reply_that_hangs_is_told_and_can_be_stopped(
    engine: ProcessEngine, impatient: Shorten
) -> None:
    impatient("ROUND", "OBEYED")
    call = engine.reply(ReplyRequest("hang"))
    until(call, "the engine has been silent")
    call.stop()
    assert "the text so far is kept, and the next message restarts it" in failed(call)
    assert call.text == words(3)
    goes_on(engine)


def test_a_stopped_engine_is_told_and_goes_on(engine: ProcessEngine, impatient: Shorten) -> None:
    impatient("STOPPED")
    call, pid = streaming(engine)
    os.kill(pid, signal.SIGSTOP)
    until(call, f"kill -CONT {pid}")
    os.kill(pid, signal.SIGCONT)
    until(call, "the engine goes on")
    call.stop()
    assert isinstance(call.result(60), Finished)
    kept(call)
    assert engine.pid == pid


def test_a_stopped_engine_can_be_left(engine: ProcessEngine, impatient: Shorten) -> None:
    impatient("STOPPED", "OBEYED")
    call, pid = streaming(engine)
    os.kill(pid, signal.SIGSTOP)
    call.stop()
    failed(call)
    kept(call)
    assert not alive(pid)
    goes_on(engine)


def test_a_reply_that_waits_for_the_pair_can_be_stopped(engine: ProcessEngine) -> None:
    assert engine.load(PairChoice("slow")).result(60)
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)
    assert eventually(lambda: engine.pid is None)
    call = engine.reply(ReplyRequest("hello"))
    call.stop()
    failed(call, "stopped")


KINDS = [pytest.param(kind, marks=pytest.mark.slow) for kind in NOISE if kind != "bytes"]


@pytest.mark.parametrize("kind", ["bytes", "closed", *KINDS])
def test_nonsense_on_the_pipe_ends_the_engine(engine: ProcessEngine, kind: str) -> None:
    call = engine.reply(ReplyRequest(f"noise {kind}", max_tokens=20))
    failed(call)
    kept(call)
    goes_on(engine)


def test_an_engine_without_memory_says_so_and_works_on(engine: ProcessEngine) -> None:
    pid = engine.pid
    call = engine.reply(ReplyRequest("memory"))
    assert failed(call, "error").startswith("not enough memory (MemoryError): close other")
    goes_on(engine)
    assert engine.pid == pid


def test_without_descriptors_it_is_told_and_works_later(engine: ProcessEngine) -> None:
    call, pid = streaming(engine)
    with no_descriptors():
        os.kill(pid, signal.SIGKILL)
        failed(call)
        kept(call)
        assert "could not be started" in failed(engine.reply(ENDLESS))
    goes_on(engine)


@pytest.mark.parametrize("count", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_random_faults_lose_no_text(engine: ProcessEngine, count: int, impatient: Shorten) -> None:
    impatient("STOPPED", "OBEYED", "ROUND")
    choice = random.Random(count)
    for _ in range(count):
        fault = choice.choice(["kill", "stop", "stop and go", "noise", "hang", "memory", "fd"])
        if fault in ("noise", "hang", "memory"):
            how = f"noise {choice.choice([*NOISE, 'closed'])}" if fault == "noise" else fault
            call = engine.reply(ReplyRequest(how, max_tokens=50))
        else:
            call, pid = streaming(engine)
            time.sleep(choice.uniform(0, 0.05))
        if fault == "stop and go":
            os.kill(pid, signal.SIGSTOP)
            time.sleep(choice.uniform(0, 0.4))
            os.kill(pid, signal.SIGCONT)
        elif fault == "stop":
            os.kill(pid, signal.SIGSTOP)
        elif fault == "kill":
            os.kill(pid, signal.SIGKILL)
        elif fault == "fd":
            with no_descriptors():
                os.kill(pid, signal.SIGKILL)
                call.result(60)
        if fault == "hang":
            assert eventually(partial(says, call, words(3)))
        call.stop()
        assert isinstance(call.result(60), Finished | Failed), fault
        kept(call)
        goes_on(engine)
    assert threading.active_count() < 20
