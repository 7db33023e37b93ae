"""What a rank is told at its start, and how it joins the others."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import mlx.core as mx

JOIN = 30
"""Seconds for the connections between all ranks."""

PACKAGES = ("macspec", "mlx", "mlx-lm")


def versions() -> dict[str, str]:
    """Of the packages that take part in a pass; they must be the same on all machines."""
    return {name: version(name) for name in PACKAGES}


@dataclass(frozen=True, slots=True)
class Start:
    """A line on standard input, since a command line is public."""

    rank: int
    address: tuple[str, int]
    """Where the engine listens."""
    secret: str
    """By which it knows its ranks."""
    parent: int | None
    """The engine's process, on its own machine."""
    backend: str
    """Of ``mx.distributed``."""
    variables: Mapping[str, str]
    files: Mapping[str, str]
    """Variables that are to name a file with this content."""

    def join(self) -> Any:
        """MLX's group of all ranks, which wait here for each other.

        It holds Python's lock meanwhile; a signal ends a rank that waits for one that is gone.

        Raises:
            RuntimeError: the ranks do not reach each other.
        """
        os.environ.update(self.variables, MLX_RANK=str(self.rank))
        paths = []
        try:
            for name, content in self.files.items():
                descriptor, path = tempfile.mkstemp(prefix="macspec-ranks-")
                paths.append(path)
                with open(descriptor, "w", encoding="utf-8") as file:
                    file.write(content)
                os.environ[name] = path
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(2 * JOIN)
            return mx.distributed.init(strict=True, backend=self.backend)
        finally:
            signal.alarm(0)
            for path in paths:
                os.unlink(path)
