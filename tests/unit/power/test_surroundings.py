"""Sleep, battery, heat, the baseline on disk, and what check says."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from scriptedpower import Script, Scripted, World, steady

from macspec.power import (
    ClockWatch,
    Conditions,
    awake,
    conditions,
    remember_idle,
    remembered_idle,
)
from macspec.power.apple import Apple
from macspec.power.choice import SOURCES, check_lines
from macspec.power.conditions import NOTIFYUTIL, PMSET
from macspec.power.history import Idle
from macspec.power.source import Rail

KEY = "com.apple.system.thermalpressurelevel"
BATTERIES = {
    "mains": "Now drawing from 'AC Power'\n -InternalBattery-0 (id=1)\t64%; charging; 1:10\n",
    "battery": "Now drawing from 'Battery Power'\n -InternalBattery-0 (id=1)\t7%; discharging\n",
    "desktop": "Now drawing from 'AC Power'\n",
}


@pytest.mark.parametrize(
    ("batteries", "level", "expected"),
    [
        ("mains", f"{KEY} 0\n", Conditions("mains", 64, "nominal")),
        ("battery", f"{KEY} 2\n", Conditions("battery", 7, "heavy")),
        ("desktop", f"{KEY}: Failed with code 1", Conditions("mains", None, None)),
        ("desktop", f"{KEY} 77", Conditions("mains", None, None)),
        ("none", "", Conditions()),
    ],
)
def test_conditions_of_a_mac(batteries: str, level: str, expected: Conditions) -> None:
    said = {PMSET: BATTERIES.get(batteries, ""), NOTIFYUTIL: level}
    assert conditions("darwin", said.__getitem__) == expected


def test_conditions_where_the_programs_are_missing() -> None:
    if sys.platform == "darwin":
        pytest.skip("on a Mac they are there")
    assert conditions("darwin") == Conditions()


def supply(folder: Path, name: str, **files: str) -> None:
    (folder / name).mkdir()
    for file, text in files.items():
        (folder / name / file).write_text(f"{text}\n")


def test_conditions_of_linux(tmp_path: Path) -> None:
    assert conditions("linux", supplies=tmp_path) == Conditions()
    supply(tmp_path, "hid", type="Battery", scope="Device", capacity="3")
    assert conditions("linux", supplies=tmp_path) == Conditions()
    supply(tmp_path, "BAT0", type="Battery", capacity="81")
    assert conditions("linux", supplies=tmp_path) == Conditions("battery", 81)
    supply(tmp_path, "AC", type="Mains", online="1")
    assert conditions("linux", supplies=tmp_path) == Conditions("mains", 81)


def test_conditions_in_words() -> None:
    assert str(Conditions()) == "power supply unknown, thermal pressure unknown"
    assert str(Conditions("battery", 7, "heavy")) == "on battery (7%), thermal pressure heavy"


def test_the_helper_lives_as_long_as_the_work(tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = f"import os, pathlib, time; pathlib.Path({str(told)!r}).write_text(str(os.getpid()))"
    command = [sys.executable, "-c", f"{script}; time.sleep(60)"]
    with awake(True, command):
        while not told.exists() or not told.read_text():
            time.sleep(0.01)
        helper = told.read_text()
        assert _lives(helper)
    assert not _lives(helper)


def _lives(pid: str) -> bool:
    return subprocess.run(["ps", "-p", pid], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("command", [["/nowhere/caffeinate"], []])
def test_without_a_helper_the_work_is_done_all_the_same(command: list[str]) -> None:
    with awake(True, command):
        pass


def test_the_helper_is_only_for_those_who_want_it(tmp_path: Path) -> None:
    file = tmp_path / "started"
    with awake(False, ["touch", str(file)]):
        time.sleep(0.05)
    assert not file.exists()


def test_a_jump_is_told_once() -> None:
    world = World()
    watch = ClockWatch(world.clock, world.wall)
    world.now += 100
    assert not watch.jumped()
    world.asleep += 30
    assert watch.jumped()
    assert not watch.jumped()


IDLE = Idle("apple", {"gpu": 0.04, "cpu": 1.5}, 30.0, 1000.0)


def test_a_baseline_is_kept_for_a_day(tmp_path: Path) -> None:
    assert remembered_idle(tmp_path) is None
    remember_idle(IDLE, tmp_path / "new")
    assert remembered_idle(tmp_path / "new", now=1000 + 3600) == IDLE
    assert remembered_idle(tmp_path / "new", now=1000 + 25 * 3600) is None
    assert remembered_idle(tmp_path / "new", now=900) is None
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["idle.json"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"watts": 3}', '{"watts": {"gpu": "x"}}'])
def test_a_damaged_baseline_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "idle.json").write_text(text)
    assert remembered_idle(tmp_path) is None


def test_a_baseline_that_cannot_be_kept_disturbs_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    remember_idle(IDLE, tmp_path / "file")


def test_check_names_the_rails(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Scripted(
        World(), {"gpu": Script(steady(1))}, (Rail("gpu"), Rail("cpu", partial="one of two dies"))
    )
    monkeypatch.setitem(SOURCES, "rapl", lambda: source)
    lines = dict(check_lines("rapl"))
    assert lines["watts"] == "rapl: gpu; the whole script"
    assert lines["conditions"]
    assert source.closed


def test_check_says_why_there_are_no_watts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(SOURCES, "apple", lambda: Apple(("darwin", "x86_64")))
    lines = list(check_lines())
    assert lines[0] == (
        "watts",
        "apple: this Python is not an Apple silicon build (platform.machine() is not arm64)",
    )
    assert lines[1] == ("", "macmon: macmon is not installed: brew install macmon")
    assert next(iter(check_lines("off"))) == (
        "watts",
        "switched off: macspec config set power.source auto",
    )


def test_check_says_when_a_source_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Scripted(World(), {}, (Rail("gpu"),), dies=lambda now: True)
    monkeypatch.setitem(SOURCES, "rapl", lambda: source)
    assert next(iter(check_lines("rapl"))) == ("watts", "rapl: cannot read it: gone")
