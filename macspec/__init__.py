"""Exact speculative decoding for chat on Apple Silicon."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .events import Finished, Notice, Prefilled, Round, Text
    from .models import load_pair
    from .sampling import Sampling
    from .session import Session

    __version__: str

_HOMES = {
    **dict.fromkeys(("Finished", "Notice", "Prefilled", "Round", "Text"), "events"),
    "Sampling": "sampling",
    "Session": "session",
    "load_pair": "models",
}

__all__ = [
    "Finished",
    "Notice",
    "Prefilled",
    "Round",
    "Sampling",
    "Session",
    "Text",
    "__version__",
    "load_pair",
]


def __getattr__(name: str) -> Any:
    # The engine needs MLX, whose import takes longer than all of --help: it waits until used.
    if name == "__version__":
        from importlib.metadata import version

        return version("macspec")
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
