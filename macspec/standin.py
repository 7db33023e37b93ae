"""Stand-ins: what takes the place of a model's modules and functions while one pass is built."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mlx.nn.layers.base import Module

Place = tuple[Any, Any]
"""The holder of a module or function, and its key there."""


class StandIn:
    """Takes a module's place, and is called in its stead."""

    def __init__(self, module: Any, call: Callable[..., Any]) -> None:
        self.stands_for = module
        self.within: object = None
        """What it stands in during."""
        self._call = call

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._call(*args, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stands_for, name)


@contextmanager
def replaced(held: Sequence[Place], make: Callable[[Any, int], Any]) -> Iterator[None]:
    """Put in each place what ``make`` returns for the module there and the place's number."""
    before = [_standing(holder[key]) for holder, key in held]
    within = object()
    _open.add(within)
    try:
        for number, ((holder, key), module) in enumerate(zip(held, before, strict=True)):
            holder[key] = stand_in = make(module, number)
            stand_in.within = within
        yield
    finally:
        _open.discard(within)
        for (holder, key), module in zip(held, before, strict=True):
            holder[key] = module


_open: set[object] = set()
"""What stand-ins stand in during at the moment."""


def _standing(module: Any) -> Any:
    """What stands in a place, without stand-ins that an interrupt has left there."""
    while isinstance(module, StandIn) and module.within not in _open:
        module = module.stands_for
    return module


def places(node: Any, wanted: Callable[[Module], bool]) -> Iterator[Place]:
    """Where the modules below ``node`` are that are wanted."""
    for key, child in enumerate(node) if isinstance(node, list) else node.items():
        if isinstance(child, Module) and wanted(child):
            yield node, key
        if isinstance(child, dict | list):
            yield from places(child, wanted)


_lock = threading.Lock()
_held: dict[tuple[int, Any], tuple[int, Any]] = {}
"""By holder and key of a place: how many passes hold it, and what belongs there."""


@contextmanager
def shared(held: Sequence[tuple[Place, Callable[[Any], Any]]]) -> Iterator[None]:
    """Put in each place what its function returns for what is there, for as long as any thread
    holds it; these stand-ins must ask their own thread whether they are meant."""
    taken: list[Place] = []
    try:
        with _lock:
            for (holder, key), make in held:
                count, stock = _held.get((id(holder), key), (0, None))
                if not count:
                    stock = holder[key]
                    holder[key] = make(stock)
                _held[id(holder), key] = count + 1, stock
                taken.append((holder, key))
        yield
    finally:
        with _lock:
            for holder, key in taken:
                count, stock = _held[id(holder), key]
                if count == 1:
                    holder[key] = stock
                    del _held[id(holder), key]
                else:
                    _held[id(holder), key] = count - 1, stock


def bindings(module: Module, function: Callable[..., Any]) -> Iterator[Place]:
    """Where the modules that a model's layers come from bind a function by its name."""
    name, seen = function.__name__, set()
    for layer in module.modules():
        call: Any = inspect.unwrap(type(layer).__call__)
        imported = sys.modules.get(type(layer).__module__)
        for names in (getattr(call, "__globals__", {}), vars(imported) if imported else {}):
            bound = names.get(name)
            found = bound and inspect.unwrap(bound, stop=lambda it: it is function)
            if id(names) not in seen and found is function:
                seen.add(id(names))
                yield names, name
