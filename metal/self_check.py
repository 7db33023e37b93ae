"""The self-check of kernels, on the machine that they run on and before anything depends on them.

Kernels cannot be tested in advance on every GPU. So every variant that a pair could use is compiled
and run here, compared with its portable reference and with recorded results, and timed against what
MLX does instead. A variant that fails, does not compile or is slower is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx

from macspec.config.paths import cache_folder
from macspec.errors import brief
from macspec.io import read_json, write_atomic

from .checks import Check, check_of
from .matmul import Matmul, Matrix
from .variants import Variant

FORMAT = 2
CHAIN = 16
"""Calls that are timed together, each waiting for the one before: as in a pass."""
REPEATS = 5
CRASHED = "its last self-check ended the program"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a variant's self-check."""

    failure: str | None
    """Why it is not used though it may be fast; None if it passed."""
    seconds: float | None = None
    mlx_seconds: float | None = None
    """Of one call of macspec's kernel, and of what MLX does instead."""

    @property
    def speed(self) -> float | None:
        """How many times as fast as MLX it is."""
        if self.seconds is None or self.mlx_seconds is None:
            return None
        return self.mlx_seconds / self.seconds

    @property
    def faster(self) -> bool:
        """Whether it passed and is faster than MLX."""
        return self.failure is None and self.speed is not None and self.speed > 1


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


def _restored(failure: object, seconds: object = None, mlx_seconds: object = None) -> Outcome:
    """An outcome from the file; TypeError or ValueError if it is none."""
    times = [None if it is None else float(it) for it in (seconds, mlx_seconds)]  # type: ignore[arg-type]
    if any(it is not None and not 0 < it < 1e6 for it in times):
        raise ValueError(f"{times} are no times")
    return Outcome(None if failure is None else str(failure)[:1000], *times)


class Outcomes:
    """Outcomes on this machine by variant, in a small file that may vanish at any time.

    Args:
        path: the file; None: in the user's cache folder.
        made_for: what the outcomes depend on; None: this machine.
    """

    def __init__(self, path: Path | None = None, made_for: Mapping[str, str] | None = None) -> None:
        self._made_for = dict(machine() if made_for is None else made_for)
        name = hashlib.sha256(json.dumps(self._made_for, sort_keys=True).encode()).hexdigest()
        self._path = path or cache_folder() / "kernels" / f"{name[:16]}.json"
        self.found: dict[str, Outcome] = {}
        stored: Any = read_json(self._path)
        with contextlib.suppress(
            ValueError, TypeError, LookupError, AttributeError, ArithmeticError
        ):
            if stored["format"] == FORMAT and stored["made_for"] == self._made_for:
                self.found = {
                    str(name): _restored(**outcome) for name, outcome in stored["outcomes"].items()
                }
                if stored["checking"] is not None:
                    self.found[stored["checking"]] = Outcome(CRASHED)

    def save(self, checking: str | None = None) -> None:
        """Replace the file; ``checking`` is a variant that may end the program.

        What cannot be written is not kept.
        """
        text = json.dumps(
            {
                "format": FORMAT,
                "made_for": self._made_for,
                "checking": checking,
                "outcomes": {name: asdict(outcome) for name, outcome in self.found.items()},
            }
        )
        with contextlib.suppress(OSError):
            write_atomic(self._path, text, make_folder=True)


def self_check(
    variants: Sequence[Variant],
    matrices: Mapping[Matmul, Matrix],
    outcomes: Outcomes,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Variant, Outcome]:
    """The outcome of every variant, checked now unless it was before.

    Args:
        matrices: of the model, one for each matmul.
    """
    missing = [variant for variant in variants if str(variant) not in outcomes.found]
    for variant in missing:
        outcomes.save(checking=str(variant))
        outcomes.found[str(variant)] = _outcome(variant, matrices, clock)
    if missing:
        outcomes.save()
        mx.clear_cache()
    return {variant: outcomes.found[str(variant)] for variant in variants}


def _outcome(
    variant: Variant, matrices: Mapping[Matmul, Matrix], clock: Callable[[], float]
) -> Outcome:
    try:
        check = check_of(variant, matrices)
        if failure := check.failure():
            return Outcome(failure)
        return Outcome(None, *timed(check, clock))
    except Exception as error:
        return Outcome(f"it does not run on this machine ({brief(error)})")


def timed(check: Check, clock: Callable[[], float]) -> tuple[float, float]:
    """Median seconds of one call of ours and of MLX's, measured in turn."""
    taken: tuple[list[float], list[float]] = [], []
    for repeat in range(REPEATS + 1):
        for call, seconds in zip((check.ours, check.mlx), taken, strict=True):
            x, begin = check.start, clock()
            for _ in range(CHAIN):
                x = call(x)
            mx.eval(x)
            each = (clock() - begin) / CHAIN
            if repeat:  # the first only warms up
                seconds.append(each)
    return statistics.median(taken[0]), statistics.median(taken[1])
