"""A rank that dies or hangs, at any point: one line, the text kept, everything ended, and a way to
go on."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from children import alive, eventually
from groups import hosts_file, shared_target

from macspec.events import Finished, Notice, Prefilling, Text
from macspec.hosts.lost import PATIENCE, UNNAMED
from macspec.worker import Failed, Loaded, PairChoice, ProcessEngine, ReplyRequest
from macspec.worker.client import Call
from macspec.worker.messages import LoadProgress

TEXT = ReplyRequest("The quick brown fox jumps over the lazy dog", max_tokens=1500, raw=True)
LONG = ReplyRequest("The quick brown fox jumps over the lazy dog " * 100, max_tokens=900, raw=True)

RANKS, GUARD = b"macspec.hosts.rank", b"macspec.hosts.lost"

KILL, STOP = signal.SIGKILL, signal.SIGSTOP

POINTS = [
    (2, [("start", 1, KILL), ("join", 1, KILL), ("load", 0, KILL), ("decode", 1, STOP)]),
    (3, [("prefill", 1, KILL)]),
]
"""How many ranks, and when which of them gets which signal."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ProcessEngine]:
    engine = ProcessEngine(log=tmp_path / "engine.log")
    yield engine
    engine.close()


def choice_of(folder: Path, count: int) -> PairChoice:
    """Ranks other than 0 are away while a file is there."""
    python = folder / "python"
    python.write_text(
        f'#!/bin/sh\n[ -e {folder}/away ] && exec echo is away\nexec {sys.executable} "$@"'
    )
    python.chmod(0o700)
    hosts = str(hosts_file(folder, count, python=str(python)))
    target = str(shared_target(folder, "llama"))
    return PairChoice(target, hosts=hosts, context=2048, learn=False)


def children_of(engine: ProcessEngine, program: bytes) -> list[int]:
    """Its processes that run a program, the oldest first."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if program in line.split(b"\0") and int(parent) == engine.pid:
            found.append(int(entry.name))
    return sorted(found)


def until(call: Call, wanted: Callable[[Any], object]) -> Call:
    """The call, once such an event has arrived."""
    for event in call:
        assert not isinstance(event, Failed), event
        if wanted(event):
            return call
    raise AssertionError("it ended before that")


def begun(engine: ProcessEngine) -> Call:
    """A reply that has said something."""
    return until(engine.reply(TEXT), lambda it: isinstance(it, Text) and it.delta)


def reached(engine: ProcessEngine, choice: PairChoice, point: str, count: int) -> Call:
    """The newest call, when the engine has come so far."""
    call = engine.load(choice)
    if point == "start":
        assert eventually(lambda: len(children_of(engine, RANKS)) == count - 1)
    elif point == "join":
        assert eventually(lambda: children_of(engine, GUARD))
    elif point == "load":
        until(call, lambda it: isinstance(it, LoadProgress) and it.stage == "reading")
    else:
        loaded = call.result()
        assert isinstance(loaded, Loaded), loaded
    if point == "prefill":
        return until(engine.reply(LONG), lambda it: isinstance(it, Prefilling))
    return begun(engine) if point == "decode" else call


def lost(engine: ProcessEngine, call: Call, point: str, rank: int, number: signal.Signals) -> None:
    """Send a rank a signal, and see what comes of it."""
    lead, others = engine.pid, children_of(engine, RANKS)
    assert lead is not None
    os.kill([lead, *others][rank], number)
    how = "no longer answers" if number == STOP else "has ended"
    said = (f"the engine stopped: rank {rank} {how}",)
    if rank == 0:
        said = ("the engine stopped: it was killed by SIGKILL",)
    elif number == KILL:  # MLX may crash before the name is known
        said += (f"the engine stopped: {UNNAMED}",)
    ended = call.result(60)
    refused = False
    if isinstance(ended, Failed):
        refused = ended.message.startswith("rank 1 could not be started")
        assert (refused and point == "start") or ended.message.startswith(said), ended
        assert call.text or point != "decode"
    else:  # in between, it has come to its end
        assert isinstance(ended, Loaded | Finished)
    gone = others if refused else [lead, *others]
    assert eventually(lambda: not any(map(alive, gone)))


@pytest.mark.slow
@pytest.mark.parametrize(("count", "points"), POINTS)
def test_a_rank_is_lost(
    engine: ProcessEngine,
    tmp_path: Path,
    count: int,
    points: list[tuple[str, int, signal.Signals]],
) -> None:
    choice = choice_of(tmp_path, count)
    for point, rank, number in points:
        lost(engine, reached(engine, choice, point, count), point, rank, number)


@pytest.mark.slow
def test_it_goes_on_when_the_machine_is_back(engine: ProcessEngine, tmp_path: Path) -> None:
    lost(engine, reached(engine, choice_of(tmp_path, 2), "decode", 2), "decode", 1, KILL)
    (tmp_path / "away").touch()
    failed = engine.reply(TEXT).result(60)
    assert isinstance(failed, Failed)
    assert failed.message == "rank 1 could not be started (is away)"
    (tmp_path / "away").unlink()
    again = engine.reply(TEXT)
    until(again, lambda it: isinstance(it, Notice) and "rereading the conversation" in it.message)
    until(again, lambda it: isinstance(it, Text) and it.delta).stop()
    assert isinstance(again.result(60), Finished)
    lost(engine, again, "idle", 1, KILL)


RANK = f"""#!/bin/sh
exec {sys.executable} -P -c '
import ctypes, runpy, time
from macspec import device
from macspec.hosts import start
%s
runpy.run_module("macspec.hosts.rank", run_name="__main__")'
"""

LATE = f"device.prepare = lambda: time.sleep({PATIENCE} + 3)"

# As MLX does where it waits to connect again, without letting go of Python's lock.
SILENTLY = f"""join = start.Start.join
start.Start.join = lambda self: (join(self), ctypes.PyDLL(None).sleep({PATIENCE:.0f} + 3))[0]
"""


@pytest.mark.slow
@pytest.mark.parametrize("slow", [LATE, SILENTLY], ids=["late", "silent"])
def test_who_waits_for_a_slow_rank_is_not_lost(
    engine: ProcessEngine, tmp_path: Path, slow: str
) -> None:
    late = tmp_path / "late"
    late.write_text(RANK % slow)
    late.chmod(0o700)
    path = hosts_file(tmp_path, 3, python=sys.executable)
    first, second, third = json.loads(path.read_text())
    path.write_text(json.dumps([first, second, {**third, "python": str(late)}]))
    target = str(shared_target(tmp_path, "llama"))
    choice = PairChoice(target, hosts=str(path), context=2048, learn=False)
    loaded = engine.load(choice).result(60)
    assert isinstance(loaded, Loaded), loaded
