"""What a measurement was made under: battery or mains, and thermal pressure."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
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
    """None where the system does not tell."""

    supply: str | None = None
    """mains or battery."""
    charge: int | None = None
    """The battery's, in percent."""
    thermal: str | None = None
    """The pressure level: nominal, moderate, heavy, trapping or sleeping."""

    def __str__(self) -> str:
        charge = "" if self.charge is None else f" ({self.charge} %)"
        supply = "power supply not known" if self.supply is None else f"on {self.supply}{charge}"
        thermal = "not known" if self.thermal is None else self.thermal
        return f"{supply}, thermal pressure {thermal}"


def conditions(
    system: str = sys.platform,
    ask: Callable[[tuple[str, ...]], str] | None = None,
    supplies: Path = SUPPLIES,
) -> Conditions:
    """What the system tells without special rights; takes some ten milliseconds on a Mac.

    Args:
        system: as ``sys.platform``.
        ask: runs a program of macOS and returns what it prints.
        supplies: where Linux shows its power supplies.
    """
    if system == "darwin":
        ask = ask or _printed
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


def _printed(command: tuple[str, ...]) -> str:
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
