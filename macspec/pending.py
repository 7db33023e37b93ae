"""Rows that stateful layers take into their states one pass late, once it is known which stay.

A pass of several rows would have to leave every stateful layer's state after the last accepted row,
which is not known while it runs. So a kernel that computes the outputs of such a pass leaves the
state from before it, and the pass's rows are pending. The next pass says how many of them stay:
its kernel first runs over those, writes the state after them, and goes on with its own rows. So a
state is read once and written once a pass, and taking rows back costs neither a launch nor a byte.

A convolution's window of the last inputs needs no kernel for that: after m rows it is a slice of
the pass's input, which is the window before the pass followed by the rows. MLX reads a slice where
it lies.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.convolution import Conv1d
from mlx_lm.models.cache import ArraysCache

from .standin import Place, StandIn, bindings, places, replaced, shared


class Recurrence(Protocol):
    """A kernel in place of a function of mlx-lm that advances a state over rows.

    It must be usable for all of a model's calls of that function, or for none.
    """

    @property
    def stock(self) -> Callable[..., Any]:
        """The function, which models import by its name; it returns outputs and state."""
        ...

    def takes(self, rows: int) -> bool:
        """Whether passes of so many rows use it; if not, MLX computes them."""
        ...

    def rows(self, arguments: Mapping[str, Any]) -> Any:
        """What the rows of a call are to `run`, in any form.

        Args:
            arguments: of the function, by their names; ``state`` is one of them.
        """
        ...

    def run(
        self, state: mx.array | None, before: Any, kept: int, rows: Any
    ) -> tuple[mx.array, mx.array]:
        """Outputs of the new rows, and the state after the kept rows and before the new ones.

        Args:
            state: from before the rows that are pending; None: at the start of a text.
            before: what `rows` made of the pending rows; where there are none, the new rows.
            kept: how many of the pending rows stay, the first ones.
            rows: what `rows` made of the new rows.
        """
        ...


Slot = tuple[ArraysCache, int]


@dataclass(frozen=True, slots=True)
class Pending:
    """The rows of a pass that the states do not hold yet.

    Attributes:
        start: positions that the states do hold.
        rows: of the pass.
        kept: how many of them stay, the first ones.
        calls: of recurrences, in order: where the state is, which one, and its rows.
        windows: of convolutions: where the window is, and the input that it is a slice of.
    """

    start: int
    rows: int
    kept: int
    calls: Sequence[tuple[Slot, Recurrence, Any]]
    windows: Sequence[tuple[Slot, mx.array]]

    def keep(self, kept: int) -> Pending:
        """The same with another number of rows that stay; the windows follow at once."""
        for (leaf, at), source in self.windows:
            leaf[at] = source[:, kept : source.shape[1] - self.rows + kept]
        return replace(self, kept=kept)

    def fold(self) -> None:
        """Bring the states to the rows that stay."""
        for (leaf, at), recurrence, rows in self.calls if self.kept else ():
            leaf[at] = recurrence.run(leaf[at], rows, self.kept, rows)[1]


class Handler(Protocol):
    """Is given what a thread's calls of the functions are."""

    def called(self, stock: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """What the function is to return."""
        ...


class _Thread(threading.local):
    handler: Handler | None = None


_thread = _Thread()


class Functions:
    """The places where a model's modules call functions of mlx-lm by their names."""

    def __init__(self, module: Module, functions: Sequence[Callable[..., Any]]) -> None:
        self._places = [
            (place, functools.partial(_heard, function))
            for function in functions
            for place in bindings(module, function)
        ]

    def __deepcopy__(self, memo: Any) -> Functions:
        """Itself: a copy of the model calls the same functions."""
        return self

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let `handled` work inside."""
        with shared(self._places):
            yield


@contextmanager
def handled(handler: Handler) -> Iterator[None]:
    """Let a handler answer this thread's calls of the functions that are held."""
    before = _thread.handler
    try:
        _thread.handler = handler
        yield
    finally:
        _thread.handler = before


def _heard(function: Callable[..., Any], stock: Callable[..., Any]) -> Callable[..., Any]:
    """In place of a function of mlx-lm, or of a stand-in for it that an interrupt has left."""
    signature = inspect.signature(function)

    @functools.wraps(stock)
    def call(*args: Any, **named: Any) -> Any:
        handler = _thread.handler
        if handler is None:
            return stock(*args, **named)
        bound = signature.bind(*args, **named)
        bound.apply_defaults()
        return handler.called(function, bound.arguments)

    return call


class PendingRows:
    """Passes of one model whose rows stay pending.

    Args:
        mixers: where the modules are that are given the states.
        recurrences: for the functions by which they advance those.
    """

    def __init__(
        self, module: Module, mixers: Sequence[Place], recurrences: Sequence[Recurrence]
    ) -> None:
        self.recurrences = {it.stock: it for it in recurrences}
        self.functions = Functions(module, list(self.recurrences))
        self._mixers = mixers
        self._convolutions = [list(places(holder[key], _is_convolution)) for holder, key in mixers]

    def takes(self, rows: int) -> bool:
        """Whether passes of so many rows can be built that way."""
        return rows > 1 and all(it.takes(rows) for it in self.recurrences.values())

    @contextmanager
    def building(self, start: int, rows: int, before: Pending | None) -> Iterator[_Building]:
        """Build a pass inside.

        Args:
            start: positions held before it.
            before: the rows that are pending.
        """
        building = _Building(self.recurrences, start, rows, before)

        def make(mixer: Any, at: int) -> Any:
            def called(*args: Any, **named: Any) -> Any:
                with building.mixer((*args, *named.values()), self._convolutions[at]):
                    return mixer(*args, **named)

            return StandIn(mixer, called)

        with self.functions.held(), replaced(self._mixers, make):
            yield building


@dataclass
class _Building:
    """A pass while it is built."""

    recurrences: Mapping[Callable[..., Any], Recurrence]
    start: int
    rows: int
    before: Pending | None
    _calls: list[tuple[mx.array, Recurrence, Any]] = field(default_factory=list)
    """With the state that each left."""
    _slots: list[Slot] = field(default_factory=list)
    _windows: list[tuple[Slot, mx.array]] = field(default_factory=list)

    @contextmanager
    def mixer(self, given: Sequence[Any], convolutions: Sequence[Place]) -> Iterator[None]:
        """One mixer is called inside, with these arguments."""
        inputs: list[mx.array] = []
        first = len(self._calls)

        def hear(convolution: Any, _: int) -> Any:
            def convolve(x: mx.array) -> Any:
                inputs.append(x)
                return convolution(x)

            return StandIn(convolution, convolve)

        with replaced(convolutions, hear), handled(self):
            yield
        leaves = [leaf for it in given for leaf in getattr(it, "caches", [it])]
        states = [leaf for leaf in leaves if isinstance(leaf, ArraysCache)]
        slots = [(leaf, at) for leaf in states for at in range(len(leaf.cache))]
        slots = [(leaf, at) for leaf, at in slots if leaf[at] is not None]
        for state, *_ in self._calls[first:]:
            self._slots.append(_taken(slots, [it for it in slots if it[0][it[1]] is state]))
        for source in inputs:
            shape = (1, source.shape[1] - self.rows, source.shape[2])
            slot = _taken(slots, [(leaf, at) for leaf, at in slots if leaf[at].shape == shape])
            self._windows.append((slot, source))
        if slots:
            raise ValueError("a state that neither a kernel nor a convolution left")

    def called(self, stock: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        recurrence = self.recurrences[stock]
        rows = before = recurrence.rows(arguments)
        kept = 0
        if self.before is not None:
            _, _, before = self.before.calls[len(self._calls)]
            kept = self.before.kept
        y, state = recurrence.run(arguments["state"], before, kept, rows)
        self._calls.append((state, recurrence, rows))
        return y, state

    def pending(self) -> Pending:
        """The rows of the pass, all of which stay for now."""
        calls = [
            (slot, recurrence, rows)
            for slot, (_, recurrence, rows) in zip(self._slots, self._calls, strict=True)
        ]
        return Pending(self.start, self.rows, self.rows, calls, self._windows).keep(self.rows)


def _taken(slots: list[Slot], found: list[Slot]) -> Slot:
    """The first of those found; it is no longer among the slots."""
    if not found:
        raise ValueError("a state that is not kept as it was left")
    slots.remove(found[0])
    return found[0]


def _is_convolution(module: Module) -> bool:
    return isinstance(module, Conv1d)
