"""Kernels prove themselves on the machine that they run on, before anything depends on them.

Nobody has seen them run on all the GPUs there are. So every variant that a pair could use is
compiled and compared with its portable reference on the GPU, and with bits recorded elsewhere, and
timed against what MLX does instead. What is wrong, does not compile or is slower is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx

from macspec.config import cache_folder
from macspec.errors import brief

from .affine import Matrix
from .trials import Trial, trial
from .variants import Product, Variant

FORMAT = 1
CHAIN = 16
"""Calls that are timed together, each waiting for the one before: as in a pass."""
REPEATS = 5
INTERRUPTED = "the last attempt to try it ended the program"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of trying a variant."""

    wrong: str | None
    """Why it is not used though it may be fast; None if it proved right."""
    ours: float | None = None
    theirs: float | None = None
    """Seconds of one call of macspec's kernel, and of what MLX does instead."""

    @property
    def speed(self) -> float | None:
        """How many times as fast as MLX it is."""
        return None if self.ours is None or self.theirs is None else self.theirs / self.ours

    @property
    def faster(self) -> bool:
        """Whether it is right and faster."""
        return self.wrong is None and self.speed is not None and self.speed > 1

    @property
    def why_not(self) -> str | None:
        """Why the variant is not used, in half a sentence; None if it is right and faster."""
        if self.wrong is not None:
            return self.wrong
        return None if self.faster else "MLX's is as fast or faster"


@cache
def text_key() -> str:
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
        "kernels": text_key(),
    }


class Proofs:
    """Outcomes on this machine, in a small file that may vanish at any time.

    Args:
        path: the file; None: in the user's cache folder.
        made_for: what the outcomes depend on; None: this machine.
    """

    def __init__(self, path: Path | None = None, made_for: Mapping[str, str] | None = None) -> None:
        self._made_for = dict(machine() if made_for is None else made_for)
        name = hashlib.sha256(json.dumps(self._made_for, sort_keys=True).encode()).hexdigest()
        self._path = path or cache_folder() / "kernels" / f"{name[:16]}.json"
        self.outcomes: dict[str, Outcome] = {}
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            stored: Any = json.loads(self._path.read_text(encoding="utf-8"))
            if stored["format"] == FORMAT and stored["made_for"] == self._made_for:
                self.outcomes = {
                    str(name): Outcome(**outcome) for name, outcome in stored["outcomes"].items()
                }
                if stored["trying"] is not None:
                    self.outcomes[stored["trying"]] = Outcome(INTERRUPTED)

    def save(self, trying: str | None = None) -> None:
        """Replace the file; ``trying`` is a variant that may end the program.

        What cannot be written is not kept.
        """
        text = json.dumps(
            {
                "format": FORMAT,
                "made_for": self._made_for,
                "trying": trying,
                "outcomes": {name: asdict(outcome) for name, outcome in self.outcomes.items()},
            }
        )
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, aside = tempfile.mkstemp(dir=self._path.parent, prefix=self._path.name)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                os.replace(aside, self._path)
            except OSError:
                os.unlink(aside)
                raise


def prove(
    asked: Sequence[Variant],
    matrices: Mapping[Product, Matrix],
    proofs: Proofs,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Variant, Outcome]:
    """The outcome of every variant, tried now unless it was tried before.

    Args:
        matrices: of the model, one for each product.
    """
    found: dict[Variant, Outcome] = {}
    missing = [variant for variant in asked if str(variant) not in proofs.outcomes]
    for variant in missing:
        proofs.save(trying=str(variant))
        proofs.outcomes[str(variant)] = _tried(variant, matrices, clock)
    if missing:
        proofs.save()
        mx.clear_cache()
    for variant in asked:
        found[variant] = proofs.outcomes[str(variant)]
    return found


def _tried(
    variant: Variant, matrices: Mapping[Product, Matrix], clock: Callable[[], float]
) -> Outcome:
    try:
        tried = trial(variant, matrices)
        if wrong := tried.wrong():
            return Outcome(wrong)
        ours, theirs = timed(tried, clock)
        return Outcome(None, ours, theirs)
    except Exception as error:
        return Outcome(f"it does not run here ({brief(error)})")


def timed(tried: Trial, clock: Callable[[], float]) -> tuple[float, float]:
    """Median seconds of one call of ours and of theirs, measured in turn."""
    taken: dict[bool, list[float]] = {True: [], False: []}
    for repeat in range(REPEATS + 1):
        for ours, calls in taken.items():
            x, begin = tried.start, clock()
            for _ in range(CHAIN):
                x = tried.step(x, ours=ours)
            mx.eval(x)
            seconds = clock() - begin
            if repeat:  # the first only warms up
                calls.append(seconds / CHAIN)
    return statistics.median(taken[True]), statistics.median(taken[False])
