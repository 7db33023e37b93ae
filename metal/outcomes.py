"""What the self-checks of kernels found on this machine, in a small file."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx

from macspec.config.paths import cache_folder
from macspec.io import private_folder, read_json, write_atomic
from macspec.power.conditions import printed

FORMAT = 4
MARGIN = 1.03
"""Speed from which a kernel is taken; what is nearer to MLX's may be noise."""
LOSSES = 2
"""Times that the GPU or the machine is lost while a variant runs before it is given up."""
LOST = "the GPU had a fault or the whole machine went down while it ran, twice"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a variant's self-check."""

    failure: str | None
    """Why it is not used though it may be fast; None if it passed."""
    seconds: float | None = None
    mlx_seconds: float | None = None
    """Of one call of macspec's kernel, and of what MLX does instead."""
    least: float | None = None
    """The lower bound of ``speed``, with 98% confidence."""

    @property
    def speed(self) -> float | None:
        """How many times as fast as MLX it is."""
        if self.seconds is None or self.mlx_seconds is None:
            return None
        return self.mlx_seconds / self.seconds

    @property
    def faster(self) -> bool:
        """Whether it passed and is faster than MLX by more than the margin, beyond noise."""
        if self.failure is not None or self.speed is None:
            return False
        return self.speed > MARGIN and (self.least is None or self.least > 1)


@cache
def source_hash() -> str:
    """A hash of everything that decides what the kernels compute and how they are launched."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.iterdir()):
        if file.suffix in (".metal", ".py", ".json"):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def machine() -> dict[str, str]:
    """What an outcome depends on beside the variant."""
    return {
        "chip": str(mx.device_info().get("device_name") or platform.machine()),
        "macos": platform.mac_ver()[0],
        "mlx": version("mlx"),
        "macspec": version("macspec"),
        "kernels": source_hash(),
    }


@cache
def boot_id() -> str:
    """Of the machine's last start; empty if the system does not tell."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return printed(("sysctl", "-n", "kern.bootsessionuuid")).strip()


def restored(
    failure: object, seconds: object = None, mlx_seconds: object = None, least: object = None
) -> Outcome:
    """An outcome from the file; TypeError or ValueError if it is none."""
    times = [None if it is None else float(it) for it in (seconds, mlx_seconds, least)]  # type: ignore[arg-type]
    if any(it is not None and not 0 < it < 1e6 for it in times):
        raise ValueError(f"{times} are no times")
    return Outcome(None if failure is None else str(failure)[:1000], *times)


class Outcomes:
    """Outcomes on this machine by variant, in a small file that may vanish at any time.

    Args:
        path: the file; None: in the user's cache folder.
        made_for: what the outcomes depend on; None: this machine.
        boot: of the machine's last start; None: as the system says.
    """

    def __init__(
        self,
        path: Path | None = None,
        made_for: Mapping[str, str] | None = None,
        boot: str | None = None,
    ) -> None:
        self._made_for = dict(machine() if made_for is None else made_for)
        name = hashlib.sha256(json.dumps(self._made_for, sort_keys=True).encode()).hexdigest()
        self._path = path or cache_folder() / "kernels" / f"{name[:16]}.json"
        self.faults = self._path.with_suffix(".faults")
        """A line for each fault of the GPU in a reply: the variants that ran. Whoever sees one adds
        to it (`macspec.inuse`), though another process checks and will replace the other file."""
        self._counted: Counter[str] = Counter()
        """Those faults, by variant, as far as they were taken in."""
        self._boot = boot_id() if boot is None else boot
        self.found: dict[str, Outcome] = {}
        self.losses: dict[str, int] = {}
        """Times that the GPU or the machine was lost, by variant."""
        self.cut_short = ""
        """Why the last check ended before its end."""
        self._read()

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Keep other processes from checking; False: another one is checking now.

        If the machine went down while a variant was checked, that counts as a loss. A process that
        was killed does not: checks run in a child process of its own, whose end its parent sees.
        """
        try:
            private_folder(self._path.parent)
            descriptor = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            yield True  # Nothing is kept here, so nothing is shared.
            return
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            checking, boot = self._read()
            if checking is not None and boot != self._boot:
                self.lose(checking)
            yield True
        finally:
            os.close(descriptor)

    def lose(self, name: str) -> None:
        """Count a loss during a variant's self-check."""
        self.losses[name] = self.losses.get(name, 0) + 1
        if self.losses[name] >= LOSSES:
            self.found[name] = Outcome(LOST)
        self.save()

    def save(self, checking: str | None = None) -> None:
        """Replace the file; ``checking`` is a variant that may take the machine down.

        What cannot be written is not kept.
        """
        text = json.dumps(
            {
                "format": FORMAT,
                "made_for": self._made_for,
                "checking": checking,
                "boot": self._boot,
                "losses": self.losses,
                "faults": self._counted,
                "outcomes": {name: asdict(outcome) for name, outcome in self.found.items()},
            }
        )
        with contextlib.suppress(OSError):
            write_atomic(self._path, text, make_folder=True, durable=checking is not None)

    def _read(self) -> tuple[str | None, str]:
        """Take what the files hold; returns the variant that was being checked, and in which run
        of the machine."""
        try:
            return self._read_outcomes()
        finally:
            self._read_faults()

    def _read_faults(self) -> None:
        """What ran in a fault is checked again, last, and given up the second time."""
        counted: Counter[str] = Counter()
        with contextlib.suppress(OSError):
            for line in self.faults.read_bytes().splitlines():
                with contextlib.suppress(ValueError):
                    names = json.loads(line)
                    counted.update(map(str, names if isinstance(names, list) else ()))
        for name, count in (counted - self._counted).items():
            self.losses[name] = self.losses.get(name, 0) + count
            self.found.pop(name, None)
            if self.losses[name] >= LOSSES:
                self.found[name] = Outcome(LOST)
        self._counted = counted

    def _read_outcomes(self) -> tuple[str | None, str]:
        stored: Any = read_json(self._path)
        with contextlib.suppress(
            ValueError, TypeError, LookupError, AttributeError, ArithmeticError
        ):
            if stored["format"] == FORMAT and stored["made_for"] == self._made_for:
                found = {str(it): restored(**each) for it, each in stored["outcomes"].items()}
                losses = {str(it): int(count) for it, count in stored["losses"].items()}
                counted = Counter({str(it): int(n) for it, n in stored["faults"].items()})
                checking, boot = stored["checking"], str(stored["boot"])
                self.found, self.losses, self._counted = found, losses, counted
                return None if checking is None else str(checking), boot
        return None, ""
