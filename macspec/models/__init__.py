"""Loading a target and its draft model; incompatible pairs are rejected up front."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pair import Model, Pair, load_pair
    from .template import Template

_HOMES = {"Model": "pair", "Pair": "pair", "Template": "template", "load_pair": "pair"}

__all__ = ["Model", "Pair", "Template", "load_pair"]


def __getattr__(name: str) -> Any:
    # Lazy: some of these modules serve processes that never import MLX.
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
