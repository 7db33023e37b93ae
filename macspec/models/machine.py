"""What this machine has for models: memory, the GPU's share of it, and the pressure on it.

Nothing here imports MLX, so that the app can ask too.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..power.conditions import printed

GIB = 2**30

LARGE = 36 * GIB
"""With this much memory, macOS lets the GPU use three quarters of it instead of two thirds."""

Level = Literal["normal", "warning", "critical"]

LEVELS: dict[int | None, Level] = {1: "normal", 2: "warning", 4: "critical"}
"""Values of macOS's ``kern.memorystatus_vm_pressure_level``."""

STALLED = 10.0
"""Percent of the last ten seconds in which Linux tasks waited for memory: a warning."""

SCARCE = 0.05
"""Share of the memory below which Linux's ``MemAvailable`` is a warning."""


@dataclass(frozen=True)
class Pressure:
    """How short of memory the machine is now."""

    level: Level | None
    """None where unknown."""
    free: float | None
    """Available share of the memory, 0 to 1; None where unknown."""

    def __str__(self) -> str:
        level = self.level or "unknown"
        return level if self.free is None else f"{level}, {self.free:.0%} of the memory free"


def unified_memory() -> int:
    """Bytes of memory that the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def recommended_for(memory: int) -> int:
    """Bytes that Metal recommends using on a Mac with this much memory.

    The share is the one that logs of llama.cpp show: 11453 MB of 16 GB, 22906 MB of 32 GB,
    28991 MB of 36 GB, 51540 MB of 64 GB. Newer versions of macOS recommend up to a tenth more.
    """
    return memory * 3 // 4 if memory >= LARGE else memory * 2 // 3


def working_set() -> int:
    """Bytes that models should use here, found without Metal.

    On a Mac the limit set by ``iogpu.wired_limit_mb``, or the default; elsewhere all memory.
    """
    if sys.platform != "darwin":
        return unified_memory()
    megabytes = _sysctl("iogpu.wired_limit_mb") or 0  # 0 is macOS's own choice
    return megabytes * 2**20 or recommended_for(unified_memory())


def wired_advice(needed: int, limit: int) -> str | None:
    """How to let models use more than ``limit`` bytes of a Mac's memory, if ``needed`` then fit."""
    room = unified_memory() - max(unified_memory() // 8, 4 * GIB)
    if sys.platform != "darwin" or not limit < needed <= room:
        return None
    megabytes = -(-needed * 21 // 20 // 2**20)
    return (
        "macOS limits the GPU to part of the memory; to raise the limit until the next restart: "
        f"sudo sysctl iogpu.wired_limit_mb={min(megabytes, room // 2**20)} (leaving the rest to "
        "everything else on this Mac)"
    )


def pressure() -> Pressure:
    """How short of memory the machine is, from the kernel and without special rights."""
    if sys.platform == "darwin":
        level = _sysctl("kern.memorystatus_vm_pressure_level")
        found = re.search(r"free percentage:\s*(\d+)%", printed(("memory_pressure", "-Q")))
        free = int(found[1]) / 100 if found else None
        return Pressure(LEVELS.get(level), free)
    return _linux(Path("/proc"))


def _linux(proc: Path) -> Pressure:
    """From ``meminfo`` and, where the kernel keeps it, ``pressure/memory``."""
    try:
        lines = (proc / "meminfo").read_text().splitlines()
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        free = sizes["MemAvailable"] / sizes["MemTotal"]
    except (OSError, ValueError, KeyError, IndexError, ZeroDivisionError):
        return Pressure(None, None)
    try:
        some = re.search(r"some avg10=([\d.]+)", (proc / "pressure" / "memory").read_text())
    except OSError:
        some = None
    waiting = float(some[1]) if some else 0.0
    if free < SCARCE and waiting > STALLED:
        return Pressure("critical", free)
    return Pressure("warning" if free < SCARCE or waiting > STALLED else "normal", free)


def chip() -> str:
    """The processor, for a report."""
    if sys.platform == "darwin":
        return printed(("sysctl", "-n", "machdep.cpu.brand_string")).strip()
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2] for line in text.splitlines() if line.startswith("model name")]
    return f"{platform.machine()}{names[0] if names else ''}, {os.cpu_count()} cores"


def _sysctl(name: str) -> int | None:
    try:
        return int(printed(("sysctl", "-n", name)))
    except ValueError:
        return None
