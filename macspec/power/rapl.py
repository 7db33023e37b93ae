"""Linux: the processor's running average power limit counters, in microjoules.

Kernel documentation: power/powercap/powercap.rst. A package's counter holds its cores' (``core``,
``uncore``), so those are left out; ``psys`` is the whole machine. Since 2020 only root may read
them, unless the administrator says otherwise.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from .source import PowerError, Rail, Reading

FOLDER = Path("/sys/class/powercap")


@dataclass(frozen=True, slots=True)
class _Zone:
    file: Path
    rail: Rail


class Rapl:
    """The processor's packages, its memory, and the whole machine where it is counted.

    Args:
        folder: where the kernel shows its power zones.
    """

    name = "rapl"
    basis = "the whole processor, as it counts itself"

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._zones: list[_Zone] = []

    @property
    def rails(self) -> tuple[Rail, ...]:
        return tuple(zone.rail for zone in self._zones)

    def available(self) -> str | None:
        if self._zones:
            return None
        try:
            zones = [_zone(folder) for folder in sorted(self._folder.glob("intel-rapl:*"))]
        except PermissionError:
            return (
                "the energy counters are for root alone: "
                f"sudo chmod a+r {self._folder}/intel-rapl:*/energy_uj (until the next start)"
            )
        except (OSError, ValueError) as error:
            return f"the processor's energy counters cannot be read: {error}"
        self._zones = _told_apart([zone for zone in zones if zone is not None])
        return None if self._zones else "this machine shows no energy counters of its processor"

    def read(self) -> Reading:
        joules = {}
        for zone in self._zones:
            try:
                joules[zone.rail.name] = int(zone.file.read_text()) / 1e6
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
    return _Zone(folder / "energy_uj", Rail(rail, wraps_at=limit, contains=rail == "system"))


def _told_apart(zones: list[_Zone]) -> list[_Zone]:
    """Numbers behind names where a machine has several packages."""
    names = [zone.rail.name for zone in zones]
    told = []
    for place, zone in enumerate(zones):
        name, rail = zone.rail.name, zone.rail
        if names.count(name) > 1:
            name = f"{name}{names[:place].count(name)}"
        told.append(_Zone(zone.file, Rail(name, wraps_at=rail.wraps_at, contains=rail.contains)))
    return told
