"""Ctrl-C ends a command whatever its libraries do; everything else of a command is passed on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from terminal import Terminal, descendants, macspec

from macspec.assets import pocket
from macspec.terminal import INTERRUPTED

OPENING = """
import itertools, os, signal, sys, time
from macspec import terminal
from macspec.cli.main import leave_on_interrupt
leave_on_interrupt()
terminal.supervisor = os.getppid()
"""

# One step of Python's that has no end and keeps its lock.
HANGING = "print('ready', flush=True); sum(itertools.repeat(0))"

OBEDIENT = """
with terminal.interruptible():
    try:
        print('ready', flush=True)
        time.sleep(1000)
    except KeyboardInterrupt:
        time.sleep(0.5)
        for _ in range(3):  # its time is over, as far as its supervisor knows
            os.kill(os.getppid(), signal.SIGALRM)
            time.sleep(0.1)
        print('saved')
        sys.exit(130)
"""


def supervised(program: str, obey: float = 0.4) -> Terminal:
    """A program in a child, in a terminal; ``obey``: how long it has to, in seconds."""
    parent = f"""
import sys
from macspec.cli import supervisor
supervisor.OBEY = {obey}
sys.exit(supervisor.supervise([sys.executable, "-P", "-c", {OPENING + program!r}]))
"""
    return Terminal([sys.executable, "-P", "-c", parent], os.environ)


def interrupt(it: Terminal, by_key: bool = True) -> None:
    """A key reaches all processes of a terminal, a signal from elsewhere only one."""
    if by_key:
        it.press("ctrl+c")
    else:
        it.signal(signal.SIGINT)


def assert_ended(it: Terminal, shown: str) -> None:
    """Ctrl-C ends it and all that it started, and leaves what was shown."""
    children = descendants(it.process.pid)
    assert children
    interrupt(it)
    assert it.ended() == INTERRUPTED
    assert "macspec: it did not answer and was ended" in it.lines
    assert shown.encode() in it.output
    until = time.monotonic() + 60
    while any(not status.startswith("Z") for status in asked_of_ps("state", children)):
        assert time.monotonic() < until, "a child was left behind"
        time.sleep(0.05)


def test_a_command_that_hangs_with_pythons_lock_is_ended() -> None:
    with supervised(HANGING) as it:
        it.wait_for("ready")
        assert_ended(it, "ready")


@pytest.mark.parametrize("by_key", [True, False])
def test_a_command_that_obeys_has_all_the_time_it_needs(by_key: bool) -> None:
    with supervised(OBEDIENT, obey=60) as it:
        it.wait_for("ready")
        interrupt(it, by_key)
        assert it.ended() == INTERRUPTED
        assert "saved" in it.text
        assert "did not answer" not in it.text


def test_input_and_exit_status_are_passed_on() -> None:
    with supervised("print(input('name? ')[::-1]); sys.exit(7)") as it:
        it.wait_for("name?")
        it.type("abc\r")
        assert it.ended() == 7
        assert "cba" in it.text


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("SIGSEGV", "error: it crashed (SIGSEGV): please report it"),
        ("SIGKILL", "error: it was ended by SIGKILL, as when memory runs out: close other"),
    ],
)
def test_a_crash_is_one_line(name: str, says: str) -> None:
    with supervised(f"os.kill(os.getpid(), signal.{name})") as it:
        assert it.ended() == 2
        assert says in it.text


def test_a_crash_while_kernels_run_blames_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACSPEC_HOME", str(tmp_path))
    faults = tmp_path / "faults"
    program = f"""
from pathlib import Path
from macspec.inuse import InUse
in_use = InUse(["plain", "chain"], Path({str(faults)!r}))
in_use.note("chain")
os.abort()
"""
    with supervised(program) as it:
        assert it.ended() == 2
        assert "error: it crashed (SIGABRT) while macspec's kernels ran: the next start" in it.text
    assert faults.read_text() == '["chain"]\n'


def hanging(folder: Path, part: str, trigger: str) -> Path:
    """A model whose tokenizer takes minutes to read, or to write, a text with a certain word."""
    shutil.copytree(pocket().target, folder)
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    grows = {"type": "Replace", "pattern": {"String": trigger}, "content": "a" * 4_000}
    hangs = {"Regex": "a*a*$(?<!a)"}  # Cubic in the letters, and each match in Oniguruma's limit.
    if part == "decoder":
        tokenizer["decoder"]["decoders"] += [grows, {**grows, "pattern": hangs, "content": ""}]
    else:
        both = [grows, tokenizer["normalizer"]]
        tokenizer["normalizer"] = {"type": "Sequence", "normalizers": both}
        split = {"type": "Split", "behavior": "Isolated", "invert": False}
        tokenizer["pre_tokenizer"] = {**split, "pattern": hangs}
    file.write_text(json.dumps(tokenizer))
    return folder


START = 10.0
"""Seconds of processor time in which a command surely has started, without a word if need be."""


def assert_hangs(it: Terminal) -> None:
    """It works without a word."""
    said, begun = b"", 0.0

    def silent() -> bool:
        nonlocal said, begun
        time.sleep(0.2)
        now = spent(descendants(it.process.pid))
        if it.output != said:
            said, begun = it.output, now
        return now - begun > START

    it.wait_for(silent, timeout=240, what="a hang")


def spent(pids: Iterable[int]) -> float:
    """Seconds of processor time of processes."""
    parts = [it.split(":")[::-1] for it in asked_of_ps("time", pids)]
    return sum(float(part) * 60**power for each in parts for power, part in enumerate(each))


def asked_of_ps(column: str, pids: Iterable[int]) -> list[str]:
    command = ["ps", "-o", f"{column}=", "-p", ",".join(map(str, pids))]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


BENCH = ["bench", "--workloads", "chat", "--arms", "plain", "--no-plot"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "part", "trigger", "shown"),
    [
        (["run", "Hello", "--temperature", "0"], "decoder", " help", "Hello!"),
        (["check"], "normalizer", "rain", "prompt 1"),
        (BENCH, "normalizer", "bored", ""),
    ],
)
def test_a_tokenizer_that_hangs_on_a_later_text_is_ended(
    command: list[str], part: str, trigger: str, shown: str, tmp_path: Path
) -> None:
    folder = hanging(tmp_path / "model", part, trigger)
    environ = {**os.environ, "MACSPEC_HOME": str(tmp_path / "home")}
    with Terminal(macspec(*command, "--target", str(folder)), environ) as it:
        it.wait_for(lambda: shown.encode() in it.output, what=shown)
        assert_hangs(it)
        assert_ended(it, shown)
