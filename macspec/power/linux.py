"""Linux: RAPL counters of processors, and NVML counters of NVIDIA cards."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from .source import PowerError, Rail, Reading

FOLDER = Path("/sys/class/powercap")


_Zone = tuple[Path, Rail]
"""A counter's file and what it counts."""


class Rapl:
    """Running average power limit counters: processor packages, memory, sometimes the machine.

    A package's counter includes its cores', so those are left out; ``psys`` is the whole machine.
    Since 2020 only root may read them, unless the administrator changes that (kernel documentation:
    power/powercap/powercap.rst).
    """

    name = "rapl"
    basis = "the whole processor, by its own counters"

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._zones: list[_Zone] = []

    @property
    def rails(self) -> tuple[Rail, ...]:
        return tuple(rail for _, rail in self._zones)

    def available(self) -> str | None:
        if self._zones:
            return None
        try:
            zones = [_zone(folder) for folder in sorted(self._folder.glob("intel-rapl:*"))]
        except PermissionError:
            return (
                "only root may read the energy counters: "
                f"sudo chmod a+r {self._folder}/intel-rapl:*/energy_uj (until the next boot)"
            )
        except (OSError, ValueError) as error:
            return f"cannot read the processor's energy counters: {error}"
        self._zones = _numbered([zone for zone in zones if zone is not None])
        return None if self._zones else "this machine's processor has no energy counters"

    def read(self) -> Reading:
        joules = {}
        for file, rail in self._zones:
            try:
                joules[rail.name] = int(file.read_text()) / 1e6
            except (OSError, ValueError) as error:
                raise PowerError(str(error)) from None
        if not joules:
            raise PowerError("the source is closed")
        return Reading(time.monotonic(), joules)

    def close(self) -> None:
        self._zones = []


def _zone(folder: Path) -> _Zone | None:
    name = (folder / "name").read_text().strip()
    kinds = {"package": "cpu", "dram": "dram", "psys": "system"}
    rail = kinds.get(name.partition("-")[0])
    if rail is None:
        return None
    int((folder / "energy_uj").read_text())
    limit = int((folder / "max_energy_range_uj").read_text()) / 1e6
    return folder / "energy_uj", Rail(rail, wraps_at=limit, contains=rail == "system")


def _numbered(zones: list[_Zone]) -> list[_Zone]:
    """The zones, with numbers after names that occur more than once."""
    names = [rail.name for _, rail in zones]
    found = []
    for place, (file, rail) in enumerate(zones):
        if names.count(rail.name) > 1:
            rail = replace(rail, name=f"{rail.name}{names[:place].count(rail.name)}")
        found.append((file, rail))
    return found


class Nvml:
    """One rail per card, in millijoules since its driver was loaded (Volta and later)."""

    name = "nvml"
    basis = "the whole card, by its driver's count"

    def __init__(self, library: Callable[[], Any] | None = None) -> None:
        self._import = library or (lambda: import_module("pynvml"))
        self._library: Any = None
        self._cards: dict[str, Any] = {}
        self.rails: tuple[Rail, ...] = ()

    def available(self) -> str | None:
        if self._cards:
            return None
        try:
            nvml = self._import()
        except ImportError:
            return "nvidia-ml-py is not installed: pip install nvidia-ml-py"
        try:
            nvml.nvmlInit()
            self._library = nvml
            count = nvml.nvmlDeviceGetCount()
            cards = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
            for card in cards:
                nvml.nvmlDeviceGetTotalEnergyConsumption(card)
        except nvml.NVMLError as error:
            self.close()
            return f"NVIDIA's driver does not count energy here: {error}"
        if not cards:
            self.close()
            return "there is no NVIDIA card"
        names = ["gpu"] if count == 1 else [f"gpu{number}" for number in range(count)]
        self._cards = dict(zip(names, cards, strict=True))
        self.rails = tuple(map(Rail, names))
        return None

    def read(self) -> Reading:
        nvml = self._library
        if nvml is None:
            raise PowerError("the source is closed")
        try:
            joules = {
                name: nvml.nvmlDeviceGetTotalEnergyConsumption(card) / 1000
                for name, card in self._cards.items()
            }
        except nvml.NVMLError as error:
            raise PowerError(str(error)) from None
        return Reading(time.monotonic(), joules)

    def close(self) -> None:
        nvml, self._library, self._cards = self._library, None, {}
        if nvml is not None:
            nvml.nvmlShutdown()
