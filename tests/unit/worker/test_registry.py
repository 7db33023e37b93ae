"""Engines know of each other as long as they live."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from children import eventually

from macspec.worker.registry import Registry, Running

PROGRAM = """
import sys, time
from pathlib import Path
from macspec.worker.registry import Registry
assert Registry(Path(sys.argv[1])).enter("a pair", 60, 100) == []
print("entered", flush=True)
time.sleep(600)
"""


@contextmanager
def other(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"entered\n"
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def test_what_does_not_fit_beside_the_others_is_told_who_they_are(tmp_path: Path) -> None:
    ours = Registry(tmp_path)
    with other(tmp_path) as process:
        theirs = [Running(process.pid, "a pair", 60)]
        assert ours.others() == theirs
        assert ours.enter("ours", 41, 100) == theirs
        assert len(list(tmp_path.glob("*.json"))) == 1
        assert ours.enter("ours", 40, 100) == []
        assert Registry(tmp_path).others() == sorted(
            [*theirs, Running(os.getpid(), "ours", 40)], key=lambda it: order(tmp_path, it)
        )
    assert eventually(lambda: ours.others() == [])
    assert ours.enter("ours", 100, 100) == []
    ours.leave()
    assert list(tmp_path.glob("*.json")) == []


def order(folder: Path, running: Running) -> str:
    return next(
        path.name
        for path in folder.glob("*.json")
        if json.loads(path.read_text())["pid"] == running.pid
    )


def test_the_file_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    with other(tmp_path) as process:
        process.kill()
        process.wait()
        assert len(list(tmp_path.glob("*.json"))) == 1
        assert Registry(tmp_path).others() == []
        assert list(tmp_path.glob("*.json")) == []


def test_entering_again_replaces_what_was_planned(tmp_path: Path) -> None:
    ours, watching = Registry(tmp_path), Registry(tmp_path)
    for planned in (10, 90, 20):
        assert ours.enter("ours", planned, 100) == []
        assert [running.planned for running in watching.others()] == [planned]


def test_a_damaged_file_is_nobody(tmp_path: Path) -> None:
    ours = Registry(tmp_path)
    ours.enter("ours", 1, 2)
    (path,) = tmp_path.glob("*.json")
    path.write_text("{")
    assert Registry(tmp_path).others() == []


def test_without_a_folder_there_is_nobody_else(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nowhere = Registry(tmp_path / "file" / "engines")
    assert nowhere.others() == []
    assert nowhere.enter("ours", 5, 1) == []
    nowhere.leave()
