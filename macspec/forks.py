"""Where two replies that should be equal part, and whether rounding explains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fork:
    """Where two replies that should be equal part, and how close the choice was."""

    position: int
    """Index in the reply of the first token that differs."""
    plain: int | None
    """The token without speculation; None: that reply was over."""
    speculative: int | None
    gap: float | None
    """Best score minus the lower score of the two tokens; None if a reply only ended early."""
    epsilon: float

    @property
    def near_tie(self) -> bool:
        """Whether rounding explains it."""
        return self.gap is not None and self.gap <= self.epsilon


def first_difference(plain: Sequence[int], speculative: Sequence[int]) -> int | None:
    """Index of the first token that differs, a missing one included; None if all are equal."""
    pairs = zip(plain, speculative, strict=False)
    different = (at for at, (one, other) in enumerate(pairs) if one != other)
    shorter = min(len(plain), len(speculative))
    end = None if len(plain) == len(speculative) else shorter
    return next(different, end)


def explain(
    position: int,
    plain: tuple[int, ...],
    speculative: tuple[int, ...],
    scores: list[float],
    epsilon: float,
) -> Fork:
    """The fork at ``position``, given the scores [V] that the token there is chosen by."""
    one = plain[position] if position < len(plain) else None
    other = speculative[position] if position < len(speculative) else None
    gap = None
    if one is not None and other is not None:
        gap = max(scores) - min(scores[one], scores[other])
    return Fork(position, one, other, gap, epsilon)
