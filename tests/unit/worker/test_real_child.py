"""The built-in pair in a child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import SCRIPTED, alive

from macspec.events import Finished, Round, Text
from macspec.worker import Failed, Loaded, PairChoice, ProcessEngine, ReplyRequest, Status
from macspec.worker.engine import Engine

ASK = ReplyRequest("I need a hotel in London for three nights.", max_tokens=24)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessEngine]:
    engine = ProcessEngine(log=tmp_path_factory.mktemp("state") / "engine.log")
    loaded = engine.load(PairChoice(draft="built-in", learn=False)).result(120)
    assert isinstance(loaded, Loaded), loaded
    assert loaded.pair.draft is not None
    assert engine.tune(sampling={"temperature": 0}, method="draft", depth=3).result(60)
    yield engine
    engine.close()


def test_it_says_what_it_says_in_process(client: ProcessEngine) -> None:
    inside = Engine()
    inside.load(PairChoice(draft="built-in", learn=False), lambda event: None)
    inside.tune({"sampling": {"temperature": 0}, "method": "draft", "depth": 3})
    *_, expected = inside.reply(ASK)
    inside.close()
    call = client.reply(ASK)
    tokens = [token for event in call if isinstance(event, Text) for token in event.tokens]
    last = call.result(60)
    assert isinstance(last, Finished)
    assert isinstance(expected, Finished)
    assert (last.text, last.token_ids) == (expected.text, expected.token_ids)
    assert tuple(token.id for token in tokens) == last.token_ids
    assert sum(token.drafter == "draft" for token in tokens) == last.stats.accepted > 0
    assert last.stats.drafted == expected.stats.drafted


def test_depth_and_method_change_in_mid_reply(client: ProcessEngine) -> None:
    call = client.reply(ReplyRequest(ASK.messages, max_tokens=1900, forced=(500,) * 1900))
    planned = []
    for event in call:
        if isinstance(event, Round):
            planned.append((event.drafter, event.depth))
            if len(planned) == 3:
                assert client.tune(method="off").result(60)
                assert not call.done
            if event.drafter is None and len(planned) > 3:
                break
    client.interrupt()
    last = call.result(60)
    assert isinstance(last, Finished)
    assert planned[:3] == [("draft", 3)] * 3
    assert planned[-1] == (None, 0)
    assert client.tune(method="draft").result(60)


def test_after_a_kill_the_conversation_goes_on(client: ProcessEngine) -> None:
    whole = client.reply(ASK).result(60)
    assert isinstance(whole, Finished)
    pid = client.pid
    assert pid is not None
    call = client.reply(ReplyRequest(ASK.messages, max_tokens=1900, forced=(500,) * 1900))
    for event in call:
        if isinstance(event, Round):
            os.kill(pid, signal.SIGKILL)
            break
    last = call.result(60)
    assert isinstance(last, Failed)
    assert "SIGKILL" in last.message
    assert not alive(pid)
    again = client.reply(ASK).result(120)
    assert isinstance(again, Finished)
    assert again.token_ids == whole.token_ids
    assert again.stats.cached_tokens == 0
    status = client.status().result(60)
    assert isinstance(status, Status)
    assert status.memory > 0
    assert (status.tuning.method, status.tuning.depth) == ("draft", 3)


def test_the_parent_never_imports_the_engine(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from macspec.worker import PairChoice, ProcessEngine, ReplyRequest\n"
        f"engine = ProcessEngine(program={SCRIPTED!r}, log=Path({str(tmp_path / 'log')!r}))\n"
        "engine.load(PairChoice()).result(120)\n"
        "print(engine.reply(ReplyRequest('Hello', max_tokens=4)).result(60).reason)\n"
        "engine.close()\n"
        "print(sorted({'mlx', 'mlx_lm', 'numpy', 'macspec.session'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=200
    )
    assert done.stderr == ""
    reason, modules = done.stdout.splitlines()
    assert reason in ("length", "end")
    assert modules == "[]"
