"""The sources, each against a scripted library, program or folder."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from macspec.power import apple as apple_module
from macspec.power import choose
from macspec.power.apple import Apple, Macmon, _is_program
from macspec.power.choice import SOURCES, candidates
from macspec.power.linux import Nvml, Rapl
from macspec.power.source import PowerError

MAC = ("darwin", "arm64")
FOUND = 'print(\'["gpu", "cpu", "ane"]\')'


def counters(**millijoules: int | None) -> Any:
    """A monitor of zeus-apple-silicon that always shows the same."""
    fields = ("gpu_mj", "cpu_total_mj", "dram_mj", "ane_mj", "gpu_sram_mj")
    energy = SimpleNamespace(**{field: millijoules.get(field) for field in fields})
    return SimpleNamespace(get_cumulative_energy=lambda: energy)


def test_apple_shows_the_rails_that_the_probe_found() -> None:
    source = Apple(MAC, FOUND, lambda: counters(gpu_mj=1500, cpu_total_mj=7, ane_mj=None), "M4")
    assert source.available() is None
    assert source.available() is None
    assert [(rail.name, rail.batched, rail.counts) for rail in source.rails] == [
        ("gpu", False, True),
        ("cpu", True, True),
        ("ane", True, True),
    ]
    assert source.read().joules == {"gpu": 1.5, "cpu": 0.007}
    source.close()
    source.close()
    with pytest.raises(PowerError, match="closed"):
        source.read()


def test_apple_does_not_add_half_of_an_ultra() -> None:
    source = Apple(MAC, FOUND, lambda: counters(cpu_total_mj=7), "Apple M2 Ultra")
    assert source.available() is None
    cpu = source.rails[1]
    assert (cpu.name, cpu.partial, cpu.counts) == ("cpu", "one of two dies", False)


@pytest.mark.parametrize(
    ("machine", "reason"),
    [(("linux", "aarch64"), "not a Mac"), (("darwin", "x86_64"), "not an Apple silicon build")],
)
def test_apple_elsewhere(machine: tuple[str, str], reason: str) -> None:
    assert reason in str(Apple(machine).available())


@pytest.mark.parametrize(
    ("probe", "reason"),
    [
        ("import os; os.kill(os.getpid(), 11)", "killed by signal 11"),
        ("raise RuntimeError('IOReport refuses')", "RuntimeError: IOReport refuses"),
        ("print('hello')", "no answer"),
        ("print('[]')", "has no energy counters"),
        ("print('[\"sun\"]')", "has no energy counters"),
    ],
)
def test_apple_is_tried_in_a_child_first(probe: str, reason: str) -> None:
    source = Apple(MAC, probe, lambda: counters(gpu_mj=1), "M4")
    assert reason in str(source.available())
    assert source.rails == ()


def test_apple_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apple_module, "PATIENCE", 0.2)
    source = Apple(MAC, "import time; time.sleep(60)", lambda: counters(gpu_mj=1))
    assert "no answer" in str(source.available())


def test_apple_through_the_library_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "zeus_apple_silicon.py").write_text(
        "class AppleEnergyMonitor:\n"
        "    gpu_mj, cpu_total_mj, dram_mj, ane_mj = 2000, 1000, None, 0\n"
        "    def get_cumulative_energy(self): return self\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    source = Apple(MAC, chip="M4")
    assert source.available() is None
    assert source.read().joules == {"gpu": 2.0, "cpu": 1.0, "ane": 0.0}
    monkeypatch.delitem(sys.modules, "zeus_apple_silicon")


def test_apple_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apple_module, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "version_info", (3, 13, 1))
    assert "pip install zeus-apple-silicon" in str(Apple(MAC).available())
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    assert "Python 3.13" in str(Apple(MAC).available())


def test_apple_that_fails_later() -> None:
    def refuse() -> Any:
        raise ValueError("Unsupported or invalid energy unit provided: eV")

    monitor = SimpleNamespace(get_cumulative_energy=refuse)
    source = Apple(MAC, FOUND, lambda: monitor, "M4")
    assert source.available() is None
    with pytest.raises(PowerError, match="eV"):
        source.read()


PIPE = """
import json, sys, time
lines = [
    {"cpu_power": 3.0, "gpu_power": 10.0, "ram_power": 1.0, "ane_power": 0.0, "sys_power": 25.0},
    {"cpu_power": 0.0, "gpu_power": 10.0, "ram_power": 1.0, "ane_power": 0.0, "sys_power": 25.0},
]
for number in range(LINES):
    print(json.dumps(lines[number % 2]), flush=True)
    if number == 1:
        print("no JSON at all\\n[1]\\n", flush=True)
    time.sleep(0.05)
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apple_module, "MACMON_PATIENCE", 60.0)


def test_macmon_adds_up_its_watts() -> None:
    source = Macmon([sys.executable, "-c", PIPE.replace("LINES", "10000")])
    assert source.available() is None
    assert source.available() is None
    rails = {rail.name: rail for rail in source.rails}
    assert rails["cpu"].batched
    assert not rails["gpu"].batched
    assert not rails["system"].counts
    first = source.read()
    while (last := source.read()).seconds - first.seconds < 0.3:
        pass
    gpu = (last.joules["gpu"] - first.joules["gpu"]) / (last.seconds - first.seconds)
    assert gpu == pytest.approx(10)
    assert last.joules["system"] == pytest.approx(2.5 * last.joules["gpu"])
    assert last.joules["ane"] == 0
    source.close()
    source.close()


def test_macmon_that_ends() -> None:
    source = Macmon([sys.executable, "-c", PIPE.replace("LINES", "3") + "\nsys.exit(3)"])
    assert source.available() is None
    with pytest.raises(PowerError, match="status 3"):  # noqa: PT012
        while True:
            source.read()
    source.close()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ([sys.executable, "-c", "pass"], "macmon prints nothing: macmon exited with status 0"),
        (["/nowhere/macmon"], "cannot start macmon: No such file"),
    ],
)
def test_macmon_that_does_not_work(command: list[str], reason: str) -> None:
    assert reason in str(Macmon(command).available())


def test_a_script_called_macmon_is_not_macmon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "brew install macmon" in str(Macmon().available())
    program = tmp_path / "macmon"
    program.write_text("#!/bin/sh\n")
    program.chmod(stat.S_IRWXU)
    assert f"{program} is not macmon" in str(Macmon().available())
    program.write_bytes(b"\xcf\xfa\xed\xfe and more")
    assert _is_program(str(program))


class Library:
    """pynvml, scripted."""

    class NVMLError(Exception):
        pass

    def __init__(self, cards: list[int], counts: bool = True) -> None:
        self.cards, self.counts, self.open = cards, counts, 0

    def nvmlInit(self) -> None:  # noqa: N802
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:  # noqa: N802
        return number

    def nvmlDeviceGetTotalEnergyConsumption(self, card: int) -> int:  # noqa: N802
        if not self.counts:
            raise self.NVMLError("Not Supported")
        return self.cards[card]


def test_nvml_reads_every_card() -> None:
    library = Library([5000])
    source = Nvml(lambda: library)
    assert source.available() is None
    assert source.read().joules == {"gpu": 5.0}
    library.counts = False
    with pytest.raises(PowerError, match="Not Supported"):
        source.read()
    source.close()
    source.close()
    assert library.open == 0
    two = Nvml(lambda: Library([1000, 2000]))
    assert two.available() is None
    assert two.read().joules == {"gpu0": 1.0, "gpu1": 2.0}


def test_nvml_that_cannot_count() -> None:
    library = Library([1], counts=False)
    assert "Not Supported" in str(Nvml(lambda: library).available())
    assert library.open == 0
    assert "no NVIDIA card" in str(Nvml(lambda: Library([])).available())

    def missing() -> Any:
        raise ImportError

    assert "pip install nvidia-ml-py" in str(Nvml(missing).available())


def zone(folder: Path, number: str, name: str, microjoules: int, limit: int = 10**9) -> Path:
    place = folder / f"intel-rapl:{number}"
    place.mkdir()
    (place / "name").write_text(f"{name}\n")
    (place / "energy_uj").write_text(f"{microjoules}\n")
    (place / "max_energy_range_uj").write_text(f"{limit}\n")
    return place


def test_rapl_counts_packages_and_memory_once(tmp_path: Path) -> None:
    package = zone(tmp_path, "0", "package-0", 3_000_000)
    zone(tmp_path, "0:0", "core", 2_000_000)
    zone(tmp_path, "0:1", "dram", 500_000, limit=2 * 10**9)
    zone(tmp_path, "1", "psys", 9_000_000)
    source = Rapl(tmp_path)
    assert source.available() is None
    rails = {rail.name: rail for rail in source.rails}
    assert set(rails) == {"cpu", "dram", "system"}
    assert rails["cpu"].wraps_at == 1000
    assert rails["dram"].wraps_at == 2000
    assert not rails["system"].counts
    assert source.read().joules == {"cpu": 3.0, "dram": 0.5, "system": 9.0}
    (package / "energy_uj").unlink()
    with pytest.raises(PowerError):
        source.read()


def test_rapl_tells_packages_apart(tmp_path: Path) -> None:
    zone(tmp_path, "0", "package-0", 1_000_000)
    zone(tmp_path, "1", "package-1", 2_000_000)
    source = Rapl(tmp_path)
    assert source.available() is None
    assert source.read().joules == {"cpu0": 1.0, "cpu1": 2.0}


def test_rapl_that_is_not_there_or_not_for_us(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "no energy counters" in str(Rapl(tmp_path).available())
    place = zone(tmp_path, "0", "package-0", 1)
    (place / "energy_uj").write_text("nonsense")
    assert "cannot read" in str(Rapl(tmp_path).available())

    def refuse(file: Path, *_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(Path, "read_text", refuse)
    assert "sudo chmod a+r" in str(Rapl(tmp_path).available())


def test_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    source = choose("off")
    assert source.available() == "switched off in the settings (power.source)"
    with pytest.raises(PowerError):
        source.read()
    assert candidates("nvml") == ["nvml"]
    monkeypatch.setattr(sys, "platform", "darwin")
    assert candidates() == ["apple", "macmon"]
    monkeypatch.setattr(sys, "platform", "linux")
    assert candidates() == ["rapl"]
    card = SimpleNamespace(metadata={"Name": "mlx-cuda-13"})
    monkeypatch.setattr("macspec.power.choice.distributions", lambda: [card])
    assert candidates() == ["nvml"]


def test_the_choice_says_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setitem(SOURCES, "apple", lambda: Apple(MAC, "print('[]')", lambda: counters()))
    monkeypatch.setitem(SOURCES, "macmon", lambda: Macmon(["/nowhere/macmon"]))
    reason = str(choose().available())
    assert "no energy counters" in reason
    assert "; cannot start macmon" in reason
    monkeypatch.setitem(
        SOURCES, "macmon", lambda: Macmon([sys.executable, "-c", PIPE.replace("LINES", "99")])
    )
    found = choose()
    assert found.name == "macmon"
    found.close()
