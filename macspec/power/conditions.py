"""The machine around a measurement: battery, thermal pressure, and holding off sleep."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

THERMAL = ("nominal", "moderate", "heavy", "trapping", "sleeping")
"""``OSThermalPressureLevel`` of macOS, 0 to 4 (OSThermalNotification.h)."""

THERMAL_KEY = "com.apple.system.thermalpressurelevel"

PMSET = ("/usr/bin/pmset", "-g", "batt")
NOTIFYUTIL = ("/usr/bin/notifyutil", "-g", THERMAL_KEY)

SUPPLIES = Path("/sys/class/power_supply")


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the system reports; None: unknown."""

    supply: str | None = None
    """mains or battery."""
    charge: int | None = None
    """Of the battery, in percent."""
    thermal: str | None = None
    """The pressure level: nominal, moderate, heavy, trapping or sleeping."""

    def __str__(self) -> str:
        charge = "" if self.charge is None else f" ({self.charge}%)"
        supply = "power supply unknown" if self.supply is None else f"on {self.supply}{charge}"
        thermal = "unknown" if self.thermal is None else self.thermal
        return f"{supply}, thermal pressure {thermal}"


def printed(command: tuple[str, ...]) -> str:
    """What a program prints; empty if it fails."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def conditions(
    system: str = sys.platform,
    ask: Callable[[tuple[str, ...]], str] = printed,
    supplies: Path = SUPPLIES,
) -> Conditions:
    """What the system reports without special rights; takes about 10 ms on a Mac.

    ``ask`` runs a program of macOS and returns what it prints.
    """
    if system == "darwin":
        return _on_macos(ask(PMSET), ask(NOTIFYUTIL))
    return _on_linux(supplies)


def _on_macos(batteries: str, level: str) -> Conditions:
    drawing = re.search(r"drawing from '(AC|Battery)[^']*'", batteries)
    charge = re.search(r"(\d{1,3})%;", batteries)
    pressure = re.search(rf"{re.escape(THERMAL_KEY)} (\d+)", level)
    number = int(pressure[1]) if pressure else len(THERMAL)
    return Conditions(
        supply=None if drawing is None else {"AC": "mains", "Battery": "battery"}[drawing[1]],
        charge=int(charge[1]) if charge else None,
        thermal=THERMAL[number] if number < len(THERMAL) else None,
    )


def _on_linux(folder: Path) -> Conditions:
    online, charges = [], []
    for supply in sorted(folder.glob("*")):
        kind = _read(supply / "type")
        if kind in ("Mains", "USB") and _read(supply / "online") in ("0", "1"):
            online.append(_read(supply / "online") == "1")
        elif kind == "Battery" and _read(supply / "scope") != "Device":
            charge = _read(supply / "capacity")
            charges += [int(charge)] if charge.isdigit() else []
    if not online and not charges:
        return Conditions()
    return Conditions(
        supply="mains" if any(online) else "battery", charge=charges[0] if charges else None
    )


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, ValueError):
        return ""


CAFFEINATE = "/usr/bin/caffeinate"
"""Part of macOS: ``-i`` holds off idle sleep, ``-w`` until the given process ends."""


@contextmanager
def awake(wanted: bool = True, command: Sequence[str] | None = None) -> Iterator[None]:
    """Hold off idle sleep within the context; closing the lid still puts the machine to sleep.

    On a Mac this is caffeinate, which ends with this process however it ends. Elsewhere, and if it
    cannot be started, nothing happens.
    """
    if command is None and sys.platform == "darwin":
        command = [CAFFEINATE, "-i", "-w", str(os.getpid())]
    helper, quiet = None, subprocess.DEVNULL
    if wanted and command:
        with suppress(OSError):
            # In its own session, Ctrl-C does not reach it.
            helper = subprocess.Popen(
                command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
            )
    try:
        yield
    finally:
        if helper is not None:
            helper.terminate()
            helper.wait()
