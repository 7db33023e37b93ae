"""A rank that dies or hangs: one line, the text kept, everything ended, and a way to go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import alive, eventually
from groups import hosts_file, shared_target

from macspec.events import Finished, Text
from macspec.worker import Failed, Loaded, PairChoice, ProcessEngine, ReplyRequest
from macspec.worker.client import Call

TEXT = ReplyRequest("The quick brown fox jumps over the lazy dog", max_tokens=1500, raw=True)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessEngine]:
    folder = tmp_path_factory.mktemp("group")
    engine = ProcessEngine(log=folder / "engine.log")
    target = str(shared_target(folder, "llama"))
    choice = PairChoice(target, hosts=str(hosts_file(folder, 2)), context=2048, learn=False)
    loaded = engine.load(choice).result()
    assert isinstance(loaded, Loaded), loaded
    yield engine
    engine.close()


def follower_of(engine: ProcessEngine) -> int:
    """The process of rank 1."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if b"macspec.hosts.follower" in line and int(parent) == engine.pid:
            found.append(int(entry.name))
    assert len(found) == 1
    return found[0]


def begun(engine: ProcessEngine) -> Call:
    """A reply that has said something."""
    call = engine.reply(TEXT)
    for event in call:
        assert not isinstance(event, Failed), event
        if isinstance(event, Text) and event.delta:
            return call
    raise AssertionError("it said nothing")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGKILL, "rank 1 has ended"), (signal.SIGSTOP, "rank 1 no longer answers")],
)
def test_a_rank_that_is_lost_ends_the_reply_in_one_line(
    engine: ProcessEngine, number: signal.Signals, said: str
) -> None:
    call, lead = begun(engine), engine.pid
    follower = follower_of(engine)
    os.kill(follower, number)
    failed = call.result(60)
    assert isinstance(failed, Failed)
    assert failed.kind == "crashed"
    assert failed.message.startswith(f"the engine stopped: {said}")
    assert "the text so far is kept" in failed.message
    assert call.text
    assert lead is not None
    assert not alive(lead)
    assert eventually(lambda: not alive(follower))
    again = begun(engine)
    again.stop()
    assert isinstance(again.result(60), Finished)


@pytest.mark.slow
def test_ranks_end_with_rank_0(engine: ProcessEngine) -> None:
    begun(engine)
    follower, lead = follower_of(engine), engine.pid
    assert lead is not None
    os.kill(lead, signal.SIGKILL)
    assert eventually(lambda: not alive(follower))
