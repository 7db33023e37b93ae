"""Whoever is killed, and whenever: no process stays behind, and no text is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from children import SCRIPTED, alive, eventually
from scripted_engine import words

from macspec.worker import Failed, PairChoice, ProcessEngine, ReplyRequest

PARENT = Path(__file__).with_name("scripted_parent.py")

counts = pytest.mark.parametrize("count", [3, pytest.param(60, marks=pytest.mark.slow)])


def assert_gone(pid: int) -> None:
    assert eventually(lambda: not alive(pid))


@pytest.mark.long
@counts
def test_killing_the_child_at_any_moment_loses_no_text(engine: ProcessEngine, count: int) -> None:
    choice = random.Random(count)
    for _ in range(count):
        pid = engine.pid
        assert pid is not None
        call = engine.reply(ReplyRequest("slowly", max_tokens=1000))
        time.sleep(choice.uniform(0, 0.15))
        os.kill(pid, signal.SIGKILL)
        last = call.result(60)
        assert isinstance(last, Failed)
        assert last.kind == "crashed"
        assert call.text == words(len(call.text.split()))
        assert not alive(pid)
        again = engine.reply(ReplyRequest("hello", max_tokens=3))
        assert again.result(60)
        assert again.text == words(3)


@pytest.mark.long
@counts
def test_no_child_outlives_a_parent_that_is_killed(tmp_path: Path, count: int) -> None:
    choice = random.Random(count)
    for number in range(count):
        how = [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP][number % 3]
        parent = subprocess.Popen(
            [sys.executable, str(PARENT), str(tmp_path / "log")], stdout=subprocess.PIPE
        )
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        time.sleep(choice.uniform(0, 0.15))
        parent.send_signal(how)
        parent.wait(60)
        assert_gone(child)
        parent.stdout.close()


def test_no_child_outlives_a_parent_that_is_killed_while_both_start(tmp_path: Path) -> None:
    for delay in (0.0, 0.1, 0.15, 0.2, 0.25, 0.3):
        log = tmp_path / str(delay)
        parent = subprocess.Popen(
            [sys.executable, str(PARENT), str(log)], stdout=subprocess.DEVNULL
        )
        time.sleep(delay)
        parent.kill()
        parent.wait(60)
        # A child that came into being is named in the log.
        for line in log.read_text().splitlines() if log.exists() else []:
            assert line.startswith("---")
            assert_gone(int(line.split()[-1]))


def test_a_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    engine = ProcessEngine(program=SCRIPTED, log=tmp_path / "log")
    thread = threading.Thread(target=lambda: engine.load(PairChoice()).result(60))
    thread.start()
    thread.join(60)
    time.sleep(0.2)
    call = engine.reply(ReplyRequest("hello", max_tokens=3))
    assert call.result(60)
    assert call.text == words(3)
    engine.close()
