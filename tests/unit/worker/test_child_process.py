"""The pipe to one child process."""

from __future__ import annotations

import threading
from pathlib import Path

from children import SCRIPTED, alive

from macspec.worker.process import ChildProcess, Log


def test_a_child_that_has_ended_has_no_id(tmp_path: Path) -> None:
    ended = threading.Event()
    pids: list[int | None] = []

    def on_end(child: ChildProcess, reason: str) -> None:
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
