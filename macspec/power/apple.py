"""Apple's chips: the counters of IOReport's group "Energy Model", through zeus-apple-silicon.

No rights are needed. The values are the chip's own estimate, in whole millijoules. The interface
is private to Apple and its library does not check every answer, so a child process tries it first:
what kills the child does not kill a chat.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from .source import PowerError, Rail, Reading

PACKAGE = "zeus-apple-silicon"

FIELDS = {"gpu": "gpu_mj", "cpu": "cpu_total_mj", "dram": "dram_mj", "ane": "ane_mj"}
"""Rails and the fields of ``AppleEnergyMetrics``. The GPU's is stamped when it is read; the others
publish in batches (lablup/all-smi#412)."""

LAST_DIE_WINS = (1, 1, 0)
"""Up to this version the CPU of a chip of two dies is that of its last one (fixed in #9)."""

PROBE = f"""
import json
from zeus_apple_silicon import AppleEnergyMonitor
energy = AppleEnergyMonitor().get_cumulative_energy()
fields = {FIELDS!r}
print(json.dumps([rail for rail in fields if getattr(energy, fields[rail]) is not None]))
"""

PATIENCE = 20.0
"""Seconds that the child may take."""


class Apple:
    """The chip's rails.

    Args:
        machine: operating system and processor, as ``sys.platform`` and ``platform.machine`` say.
        probe: what the child process runs.
        monitor: makes the library's monitor.
        chip: the chip's name; None: asked of the system.
    """

    name = "apple"
    basis = "the whole chip, as it estimates itself"

    def __init__(
        self,
        machine: tuple[str, str] | None = None,
        probe: str = PROBE,
        monitor: Callable[[], Any] | None = None,
        chip: str | None = None,
    ) -> None:
        self._machine = machine or (sys.platform, platform.machine())
        self._probe, self._make, self._chip = probe, monitor or _monitor, chip
        self._monitor: Any = None
        self.rails: tuple[Rail, ...] = ()

    def available(self) -> str | None:
        if self._monitor is not None:
            return None
        system, processor = self._machine
        if system != "darwin":
            return "this is not a Mac"
        if processor != "arm64":
            return "this Python is not built for Apple's chips (platform.machine() is not arm64)"
        if self._make is _monitor and (missing := _missing()) is not None:
            return missing
        try:
            names = self._tried()
            self._monitor = self._make()
        except (PowerError, OSError, RuntimeError, ValueError, ImportError) as error:
            return f"{PACKAGE} does not work on this machine: {error}"
        if not names:
            return "this machine publishes no energy counters (virtual machines do not)"
        self.rails = tuple(self._rail(name) for name in names)
        return None

    def read(self) -> Reading:
        if self._monitor is None:
            raise PowerError("the source is closed")
        try:
            energy = self._monitor.get_cumulative_energy()
        except (RuntimeError, ValueError) as error:
            raise PowerError(str(error)) from None
        values = {rail.name: getattr(energy, FIELDS[rail.name]) for rail in self.rails}
        joules = {name: value / 1000 for name, value in values.items() if value is not None}
        return Reading(time.monotonic(), joules)

    def close(self) -> None:
        self._monitor = None

    def _tried(self) -> list[str]:
        """The rails that a child process found."""
        command = [sys.executable, "-P", "-c", self._probe]
        try:
            child = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PowerError(f"no answer for {PATIENCE:.0f} s") from None
        if child.returncode < 0:
            raise PowerError(f"it ended by signal {-child.returncode}")
        try:
            found = json.loads(child.stdout)
        except ValueError:
            said = child.stderr.decode(errors="replace").strip().splitlines()
            raise PowerError(said[-1][:200] if said else "no answer") from None
        return [name for name in FIELDS if name in found]

    def _rail(self, name: str) -> Rail:
        dies = name == "cpu" and "Ultra" in (self._chip or _chip()) and _last_die_wins()
        return Rail(name, batched=name != "gpu", partial="one of two dies" if dies else None)


def _missing() -> str | None:
    if find_spec("zeus_apple_silicon") is not None:
        return None
    if sys.version_info >= (3, 14):
        return (
            f"{PACKAGE} has no build for Python 3.14 yet: install macspec with Python 3.13, "
            "or macmon with brew install macmon"
        )
    return f"{PACKAGE} is not installed: pip install {PACKAGE}"


def _monitor() -> Any:
    return import_module("zeus_apple_silicon").AppleEnergyMonitor()


def _chip() -> str:
    command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=5, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _last_die_wins() -> bool:
    try:
        return tuple(map(int, version(PACKAGE).split(".")[:3])) <= LAST_DIE_WINS
    except (ImportError, ValueError):
        return True
