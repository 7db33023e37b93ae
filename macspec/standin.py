"""Stand-ins: what takes the place of a model's modules while one pass is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mlx.nn.layers.base import Module

Place = tuple[Any, Any]
"""A module's holder, and its key there."""


class StandIn:
    """Takes a module's place, and is called in its stead."""

    def __init__(self, module: Any, call: Callable[..., Any]) -> None:
        self.stands_for = module
        self._call = call

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._call(*args, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stands_for, name)


@contextmanager
def replaced(held: Sequence[Place], make: Callable[[Any, int], Any]) -> Iterator[None]:
    """Put in each place what ``make`` returns for the module there and the place's number."""
    # An interrupt may have left a stand-in there.
    before = [getattr(holder[key], "stands_for", holder[key]) for holder, key in held]
    try:
        for number, ((holder, key), module) in enumerate(zip(held, before, strict=True)):
            holder[key] = make(module, number)
        yield
    finally:
        for (holder, key), module in zip(held, before, strict=True):
            holder[key] = module


def places(node: Any, wanted: Callable[[Module], bool]) -> Iterator[Place]:
    """Where the modules below ``node`` are that are wanted."""
    for key, child in enumerate(node) if isinstance(node, list) else node.items():
        if isinstance(child, Module) and wanted(child):
            yield node, key
        if isinstance(child, dict | list):
            yield from places(child, wanted)
