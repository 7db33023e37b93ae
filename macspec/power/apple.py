"""Apple's chips: IOReport's energy counters through zeus-apple-silicon, or watts from macmon.

Neither needs special rights. IOReport is private to Apple and its library does not check every
answer, so a child process tries it first: what kills the child does not kill a chat.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from .conditions import printed
from .source import PowerError, Rail, Reading

CHIP = ("/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string")

PACKAGE = "zeus-apple-silicon"

FIELDS = {"gpu": "gpu_mj", "cpu": "cpu_total_mj", "dram": "dram_mj", "ane": "ane_mj"}
"""Fields of ``AppleEnergyMetrics`` by rail. The GPU's is up to date when it is read; the others are
published in batches (lablup/all-smi#412)."""

LAST_DIE_WINS = (1, 1, 0)
"""Up to this version a chip of two dies reports only the last one's CPU (fixed in #9)."""

PROBE = f"""
import json
from zeus_apple_silicon import AppleEnergyMonitor
energy = AppleEnergyMonitor().get_cumulative_energy()
fields = {FIELDS!r}
print(json.dumps([rail for rail in fields if getattr(energy, fields[rail]) is not None]))
"""

PATIENCE = 20.0
"""Seconds the child may take."""


class Apple:
    """The energy counters of IOReport's group "Energy Model", in whole millijoules.

    Args:
        machine: operating system and processor, as in ``sys.platform`` and ``platform.machine``.
        probe: what the child process runs.
    """

    name = "apple"
    basis = "the whole chip, by its own estimate"

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
            return "this Python is not an Apple silicon build (platform.machine() is not arm64)"
        if self._make is _monitor and (missing := _missing()) is not None:
            return missing
        try:
            names = self._tried()
            self._monitor = self._make()
        except (PowerError, OSError, RuntimeError, ValueError, ImportError) as error:
            return f"{PACKAGE} does not work on this machine: {error}"
        if not names:
            return "this machine has no energy counters (virtual machines have none)"
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
        """The rails a child process found."""
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
            raise PowerError(f"it was killed by signal {-child.returncode}")
        try:
            found = json.loads(child.stdout)
        except ValueError:
            said = child.stderr.decode(errors="replace").strip().splitlines()
            raise PowerError(said[-1][:200] if said else "no answer") from None
        return [name for name in FIELDS if name in found]

    def _rail(self, name: str) -> Rail:
        dies = name == "cpu" and "Ultra" in (self._chip or printed(CHIP)) and _last_die_wins()
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


def _last_die_wins() -> bool:
    try:
        return tuple(map(int, version(PACKAGE).split(".")[:3])) <= LAST_DIE_WINS
    except (ImportError, ValueError):
        return True


MACMON_FIELDS = {
    "gpu": "gpu_power",
    "cpu": "cpu_power",
    "dram": "ram_power",
    "ane": "ane_power",
    "system": "sys_power",
}

LONGEST_LINE = 1 << 16
MACMON_PATIENCE = 5.0
"""Seconds to wait for the first line."""

MACH_O = (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""The first bytes of a Mac program. A Python package of the same name installs a script."""


class Macmon:
    """``macmon pipe``, which prints watts once a second, in a child process.

    It reports mean watts since its last line, so joules are watts times the time between lines. It
    adds the whole machine's watts, and ends with this process as its pipe breaks.
    """

    name = "macmon"
    basis = "the whole machine, by macmon"

    def __init__(self, command: Sequence[str] | None = None) -> None:
        self._command = command
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._first = threading.Event()
        self._seconds: float | None = None
        self._joules: dict[str, float] = {}
        self._failed: str | None = None
        self.rails: tuple[Rail, ...] = ()

    def available(self) -> str | None:
        if self._child is not None:
            return None
        command = self._command
        if command is None:
            path = shutil.which("macmon") if sys.platform == "darwin" else None
            if path is None:
                return "macmon is not installed: brew install macmon"
            if not _is_program(path):
                return f"{path} is not macmon but another program: brew install macmon"
            command = [path, "pipe", "-i", "1000"]  # milliseconds
        try:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C must not reach it
            )
        except OSError as error:
            return f"cannot start macmon: {error.strerror}"
        threading.Thread(target=self._follow, args=[self._child], daemon=True).start()
        self._first.wait(MACMON_PATIENCE)
        if not self.rails:
            self.close()
            why = self._failed or f"no line for {MACMON_PATIENCE:.0f} s"
            return f"macmon prints nothing: {why}"
        return None

    def read(self) -> Reading:
        with self._lock:
            if self._failed is not None:
                raise PowerError(self._failed)
            if self._child is None or self._seconds is None:
                raise PowerError("the source is closed")
            return Reading(self._seconds, dict(self._joules))

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with suppress(ProcessLookupError):
                child.kill()
            child.wait()

    def _follow(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        with child.stdout as lines:
            while line := lines.readline(LONGEST_LINE):
                now = time.monotonic()
                try:
                    record = json.loads(line)
                    watts = {
                        rail: float(record[field])
                        for rail, field in MACMON_FIELDS.items()
                        if isinstance(record.get(field), int | float)
                    }
                except (ValueError, AttributeError):
                    continue
                self._count(now, watts)
        status = child.wait()
        with self._lock:
            self._failed = f"macmon exited with status {status}"
        self._first.set()

    def _count(self, now: float, watts: dict[str, float]) -> None:
        with self._lock:
            if self._seconds is None:
                self._joules = dict.fromkeys(watts, 0.0)
                self.rails = tuple(
                    Rail(name, batched=name in ("cpu", "dram", "ane"), contains=name == "system")
                    for name in watts
                )
            else:
                for name in self._joules:
                    self._joules[name] += max(watts.get(name, 0.0), 0.0) * (now - self._seconds)
            self._seconds = now
        self._first.set()


def _is_program(path: str) -> bool:
    try:
        with open(os.path.realpath(path), "rb") as file:
            return file.read(4) in MACH_O
    except OSError:
        return False
