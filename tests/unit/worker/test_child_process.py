"""One child process, and the log of what it prints."""

from __future__ import annotations

import stat
import sys
import threading
from pathlib import Path
from queue import SimpleQueue

from children import SCRIPTED, alive

from macspec.hosts.lost import UNNAMED
from macspec.worker.log import LOG_LIMIT, Log
from macspec.worker.process import ChildProcess


def test_a_child_that_has_ended_has_no_id(tmp_path: Path) -> None:
    ended = threading.Event()
    pids: list[int | None] = []

    def on_end(reason: str) -> None:
        pids.append(child.pid)
        ended.set()

    child = ChildProcess(SCRIPTED, Log(tmp_path / "engine.log"), lambda *_: None, on_end)
    while child.pid is None:
        assert not ended.wait(0.01)
    pids.append(child.pid)
    child.close(b"", 10)
    assert ended.is_set()
    first, last = pids
    assert first is not None
    assert not alive(first)
    assert last is None


def test_it_is_bounded_and_private(tmp_path: Path) -> None:
    path = tmp_path / "state" / "engine.log"
    log = Log(path)
    for number in range(300):
        log.write(f"{number}\n".encode() + b"x" * 10_000 + b"\n")
    log.write(b"y" * (3 * LOG_LIMIT))
    log.write(b"\nthe end\n\n")
    files = list(path.parent.iterdir())
    assert sorted(file.name for file in files) == ["engine.log", "engine.log.1"]
    assert all(file.stat().st_size <= LOG_LIMIT for file in files)
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert log.last_line == "the end"


def test_the_last_line_is_one_short_neutral_line(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    assert log.last_line == ""
    log.write(b"one\ntwo \x1b[31mred\xff\r\n \n")
    assert log.last_line == "two ␛[31mred\N{REPLACEMENT CHARACTER}"
    log.write(b"z" * 10_000)
    assert len(log.last_line) <= 200
    log.begin(5)
    assert log.last_line == ""


TALKS = """
import os
from macspec.hosts.lost import leave
os.write(2, b"[ring] Too many")
if os.fork() == 0:
    leave("rank 1 has ended")
os.wait()
os.write(2, b" errors\\n" + b"[ring] receiving failed\\n" * 500)
os._exit(1)
"""


def test_what_it_says_of_a_lost_machine_is_found(tmp_path: Path) -> None:
    """In the middle of what MLX's threads print, with much after it."""
    reasons: SimpleQueue[str] = SimpleQueue()
    program = (sys.executable, "-c", TALKS)
    ChildProcess(program, Log(tmp_path / "engine.log"), lambda *_: None, reasons.put)
    assert reasons.get() == "rank 1 has ended"


def test_a_line_of_a_lost_machine_that_arrives_in_pieces(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    for piece in (b"[ri\nlo", b"st: rank 1 has", b" ended\nng] it", b" failed\n" * 2000):
        log.write(piece)
    assert log.lost == "rank 1 has ended"
    log.begin(5)
    assert log.lost == ""


def test_a_crash_for_want_of_a_machine_is_known_without_its_name(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    log.write(b"[ring] Too many send/recv errors. Failing pending tasks...\n")
    assert log.lost == UNNAMED
    log.write(b"lost: rank 1 has ended\n")
    assert log.lost == "rank 1 has ended"


def test_a_disk_that_refuses_costs_only_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log = Log(tmp_path / "file" / "log")
    log.write(b"still known\n")
    assert log.last_line == "still known"
