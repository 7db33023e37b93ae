"""Where two replies that should be equal part."""

from __future__ import annotations

from collections.abc import Sequence


def first_difference(plain: Sequence[int], speculative: Sequence[int]) -> int | None:
    """Index of the first token that differs, a missing one included; None if all are equal."""
    pairs = zip(plain, speculative, strict=False)
    different = (at for at, (one, other) in enumerate(pairs) if one != other)
    shorter = min(len(plain), len(speculative))
    end = None if len(plain) == len(speculative) else shorter
    return next(different, end)
