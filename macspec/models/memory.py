"""The memory plan: what a pair needs at a context, against what the device gives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import mlx.core as mx

from ..errors import OutOfMemoryError
from .footprint import STEP, Footprint

LEAST = 2048
"""Shortest context that is chosen unasked to make a pair fit."""


@dataclass(frozen=True)
class Plan:
    """What a pair needs at a context, in bytes, and the limit it must stay under."""

    context: int
    weights: int
    caches: int
    buffers: int
    limit: int

    @property
    def total(self) -> int:
        return self.weights + self.caches + self.buffers

    @property
    def fits(self) -> bool:
        return self.total <= self.limit

    def __str__(self) -> str:
        return (
            f"{gigabytes(self.total)} (weights {gigabytes(self.weights)}, caches for "
            f"{self.context} positions {gigabytes(self.caches)}, buffers "
            f"{gigabytes(self.buffers)}) of the {gigabytes(self.limit)} this machine gives"
        )


def fit(
    target: Footprint,
    draft: Footprint | None = None,
    *,
    context: int | None = None,
    kv_bits: int | None = None,
    held: int = 0,
) -> tuple[Plan, Plan | None]:
    """Choose the context, and whether the draft model is used, so that the device can hold both.

    An asked context is kept: if the pair does not fit, the target alone is planned. Without one
    the target's whole context is shortened, as long as at least ``LEAST`` positions remain.

    Args:
        context: positions asked for, None for as many as fit.
        kv_bits: bits of the target's quantized cache; the draft's is never quantized.
        held: bytes that are not to be had, because other engines hold them.

    Returns:
        The plan, and the plan that did not fit if the draft model had to be left out.

    Raises:
        OutOfMemoryError: the target does not fit even alone.
    """
    limit = max(device_limit() - held, 0)
    wanted = context or target.context
    refused = None
    for used in [draft, None] if draft is not None else [None]:
        whole = plan(target, used, wanted, kv_bits, limit)
        if whole.fits:
            return whole, refused
        longest = _longest(target, used, wanted, kv_bits, limit)
        if context is None and longest >= min(LEAST, wanted):
            return plan(target, used, longest, kv_bits, limit), refused
        refused = whole
    shorter = f"ask for a shorter context (--context {longest} fits), or " if longest else ""
    raise OutOfMemoryError(
        f"the target needs {whole}: {shorter}choose a smaller or more quantized model"
    )


def plan(
    target: Footprint, draft: Footprint | None, context: int, kv_bits: int | None, limit: int
) -> Plan:
    """What a target and its draft need at a context; their passes take turns."""
    pair = [target] if draft is None else [target, draft]
    return Plan(
        context=context,
        weights=sum(model.weights for model in pair),
        caches=target.cache(context, kv_bits) + (draft.cache(context) if draft else 0),
        buffers=max(target.buffers(context, kv_bits), draft.buffers(context) if draft else 0),
        limit=limit,
    )


def longest_context(
    target: Footprint, draft: Footprint | None, kv_bits: int | None, limit: int
) -> int:
    """The most positions that fit, at most the target's own; 0 for none."""
    if plan(target, draft, target.context, kv_bits, limit).fits:
        return target.context
    return _longest(target, draft, target.context, kv_bits, limit)


def _longest(
    target: Footprint, draft: Footprint | None, below: int, kv_bits: int | None, limit: int
) -> int:
    """The most positions below a number that fit, in whole steps of the caches; 0 for none."""
    steps = range(1, -(-below // STEP))
    low, high = 0, len(steps)
    while low < high:
        middle = (low + high + 1) // 2
        if plan(target, draft, middle * STEP, kv_bits, limit).fits:
            low = middle
        else:
            high = middle - 1
    return low * STEP


def device_limit() -> int:
    """Bytes that a program should use: Metal's recommendation, else the machine's memory."""
    recommended = mx.device_info().get("max_recommended_working_set_size")
    if recommended:
        return int(recommended)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def gigabytes(count: int) -> str:
    """Bytes for people, in units of 2**30 as macOS counts memory."""
    size = count / 2**30
    return f"{size:.1f} GB" if size >= 0.1 else f"{size:.3f} GB"


@contextmanager
def wired() -> Iterator[None]:
    """Keep the models' memory wired as far as Metal recommends, and restore the limit after.

    mlx-lm's ``wired_limit`` does the same and prints its advice to standard output.
    """
    recommended = mx.device_info().get("max_recommended_working_set_size")
    if not recommended:
        yield
        return
    before = mx.set_wired_limit(int(recommended))
    try:
        yield
    finally:
        mx.synchronize()
        mx.set_wired_limit(before)
