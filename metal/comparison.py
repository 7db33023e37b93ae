"""What the checks of all kernels have in common: how a check runs, and when results are alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

TOLERANCE = {mx.float32: 2e-5, mx.float16: 4e-3, mx.bfloat16: 3e-2}
"""Largest error, in units of the largest value, between kernel and reference: matmuls and
attention are added in float32 on both sides, so it is some roundings of the type."""


@dataclass(frozen=True)
class Check:
    """One variant, ready to run on the device.

    Attributes:
        start: what a chain of calls begins with.
        ours, mlx: one call by macspec's kernel, and by what MLX does instead. Each returns its
            argument, once the result is there: a chain is as many calls, one after the other.
        failure: what is wrong with the kernel's results, in half a sentence; None if they are
            right.
    """

    start: mx.array
    ours: Callable[[mx.array], mx.array]
    mlx: Callable[[mx.array], mx.array]
    failure: Callable[[], str | None]


def normal(shape: tuple[int, ...], dtype: mx.Dtype, seed: int = 0) -> mx.array:
    """Normal variates that do not depend on the device."""
    random = np.random.default_rng([*shape, seed])
    return mx.array(random.standard_normal(shape, np.float32)).astype(dtype)


def behind(result: mx.array, x: mx.array) -> mx.array:
    """``x``, once ``result``, which can be broadcast to it, is there."""
    return x + (result * 0).astype(x.dtype)


def distance(found: mx.array, right: mx.array) -> str | None:
    """How far two results are apart, if that is too far."""
    difference = mx.max(mx.abs(found.astype(mx.float32) - right.astype(mx.float32)))
    largest: Any = mx.max(mx.abs(right.astype(mx.float32))).item()
    error: Any = difference.item()
    # Not a number is not right either.
    if error <= TOLERANCE[right.dtype] * largest:
        return None
    return f"off by {error / (largest or 1):.1e} of the largest value"
