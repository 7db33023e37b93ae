"""The pipe to one child process."""

from __future__ import annotations

import threading
from pathlib import Path

from children import SCRIPTED, alive

from macspec.worker.link import Link
from macspec.worker.log import Log


def test_a_child_that_has_ended_has_no_id(tmp_path: Path) -> None:
    ended = threading.Event()
    pids: list[int | None] = []

    def on_end(link: Link, reason: str) -> None:
        pids.append(link.pid)
        ended.set()

    link = Link(SCRIPTED, Log(tmp_path / "engine.log"), lambda *_: None, on_end)
    while link.pid is None:
        assert not ended.wait(0.01)
    pids.append(link.pid)
    link.close(b"", 10)
    assert ended.is_set()
    first, last = pids
    assert first is not None
    assert not alive(first)
    assert last is None
