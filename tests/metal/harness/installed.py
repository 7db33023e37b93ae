"""Lets whole pipelines launch their kernels through the harness."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import mlx.core as mx

from macspec.metal.kernel import Kernel, Launch

from .running import run_once


@contextmanager
def installed(*, inspected: bool = True) -> Iterator[list[str]]:
    """Every ``kernel(arrays, launch)`` inside runs here, at once; any fault raises.

    Args:
        inspected: check pass and instrumented run for each launch, then one plain run; False
            leaves only the plain run.

    Yields:
        The names of the kernels launched so far, in order.
    """
    launched: list[str] = []

    def call(kernel: Kernel, arrays: Sequence[mx.array], launch: Launch) -> list[mx.array]:
        launched.append(kernel.name)
        return run_once(kernel, arrays, launch, inspected=inspected)

    with launching(call):
        yield launched


@contextmanager
def launching(
    call: Callable[[Kernel, Sequence[mx.array], Launch], list[mx.array]],
) -> Iterator[None]:
    """``call`` takes every launch inside."""
    plain: Any = call
    bound: Any = lambda kernel, launch: lambda inputs: kernel(inputs, launch)  # noqa: E731
    with mock.patch.multiple(Kernel, __call__=plain, bound=bound):
        yield
