"""What the machine says of its memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from macspec.models import machine
from macspec.models.machine import GIB, Pressure, pressure, recommended_for, wired_advice

MEGA = 10**6


@pytest.mark.parametrize(
    ("memory", "megabytes"), [(16, 11453), (32, 22906), (36, 28991), (64, 51540), (96, 77309)]
)
def test_metals_recommendation(memory, megabytes):
    assert recommended_for(memory * GIB) / MEGA == pytest.approx(megabytes, abs=1)


def on_a_mac(monkeypatch, answers: dict[str, str], memory: int = 32 * GIB) -> None:
    monkeypatch.setattr(machine, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.setattr(machine, "printed", lambda command: answers.get(command[-1], ""))
    monkeypatch.setattr(machine, "unified_memory", lambda: memory)


LEVEL = "kern.memorystatus_vm_pressure_level"
FREE = "The system has 34359738368 bytes.\nSystem-wide memory free percentage: 64%\n"


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({LEVEL: "1\n", "-Q": FREE}, Pressure("normal", 0.64)),
        ({LEVEL: "2\n"}, Pressure("warning", None)),
        ({LEVEL: "4\n"}, Pressure("critical", None)),
        ({LEVEL: "7\n", "-Q": "?"}, Pressure(None, None)),
        ({}, Pressure(None, None)),
    ],
)
def test_pressure_of_a_mac(monkeypatch, answers, expected):
    on_a_mac(monkeypatch, answers)
    assert pressure() == expected


def test_the_working_set_of_a_mac(monkeypatch):
    on_a_mac(monkeypatch, {"iogpu.wired_limit_mb": "0\n"})
    assert machine.working_set() == recommended_for(32 * GIB)
    on_a_mac(monkeypatch, {"iogpu.wired_limit_mb": "28672\n"})
    assert machine.working_set() == 28 * GIB
    on_a_mac(monkeypatch, {})
    assert machine.working_set() == recommended_for(32 * GIB)


def test_advice_on_the_wired_limit(monkeypatch):
    assert wired_advice(2**60, 2**30) is None
    on_a_mac(monkeypatch, {})
    limit = recommended_for(32 * GIB)
    assert wired_advice(limit, limit) is None
    assert wired_advice(29 * GIB, limit) is None
    advice = wired_advice(24 * GIB, limit)
    assert advice is not None
    assert "sudo sysctl iogpu.wired_limit_mb=25805" in advice


def proc(folder: Path, available: int, waiting: str | None) -> Path:
    folder.joinpath("meminfo").write_text(
        f"MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:  {available} kB\n"
    )
    if waiting is not None:
        folder.joinpath("pressure").mkdir()
        folder.joinpath("pressure", "memory").write_text(
            f"some avg10={waiting} avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 total=1\n"
        )
    return folder


@pytest.mark.parametrize(
    ("available", "waiting", "level"),
    [
        (600, None, "normal"),
        (600, "0.00", "normal"),
        (600, "20.50", "warning"),
        (20, None, "warning"),
        (20, "20.50", "critical"),
    ],
)
def test_pressure_on_linux(tmp_path, available, waiting, level):
    found = machine._linux(proc(tmp_path, available, waiting))
    assert found == Pressure(level, available / 1000)


def test_a_system_that_does_not_tell(tmp_path):
    assert machine._linux(tmp_path) == Pressure(None, None)
    (tmp_path / "meminfo").write_text("nothing\n")
    assert machine._linux(tmp_path) == Pressure(None, None)
    assert str(Pressure(None, None)) == "unknown"


def test_this_machine():
    assert 2**28 < machine.unified_memory() >= machine.working_set()
    assert pressure().free is None or 0 < pressure().free <= 1
