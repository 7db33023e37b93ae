"""Reduced vocabularies: the ids of a target that a head guesses, for a smaller output head
(EAGLE-3, arXiv:2503.01840; FR-Spec, arXiv:2502.14856)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

Output = Callable[[mx.array], mx.array]
"""From rows [n, width] to logits."""


class Guesses:
    """Some ids of a target.

    Args:
        targets: the ids [n], in the head's order.
        vocabulary: how many the target has.
    """

    def __init__(self, targets: mx.array, vocabulary: int) -> None:
        self.targets = targets
        self.places = mx.full((vocabulary,), targets.size, mx.int32)
        """For each id of the target which guess it is, or how many there are."""
        self.places[targets] = mx.arange(targets.size)

    def whole(self, logits: mx.array) -> mx.array:
        """Logits [n, guesses] as [n, vocabulary]: what it cannot guess has no chance."""
        padded = mx.pad(logits, [(0, 0), (0, 1)], constant_values=-mx.inf)
        return mx.take(padded, self.places, axis=1)


def check_vocabulary(known: int | None, vocabulary: int) -> None:
    """Make sure that a head knows as many ids as its target, where its files say how many.

    Raises:
        ValueError: it does not; the message continues "the head".
    """
    if known not in (None, vocabulary):
        raise ValueError(f"knows {known} ids, and the target {vocabulary}")


def guesses_of(numbers: mx.array | None, own: int | None, vocabulary: int) -> Guesses | None:
    """Those that files name as ``d2t``: how much each id of the target exceeds the head's own, or
    the id itself; None without.

    Args:
        own: rows of the head's output head, if it has one.

    Raises:
        ValueError: they cannot be; the message continues "the head".
    """
    if numbers is None:
        check_vocabulary(own, vocabulary)
        return None
    if numbers.shape != (own or numbers.size,):
        raise ValueError(f"names {numbers.size} ids of the target for {own} of its own")
    numbers = numbers.astype(mx.int32)
    for ids in (mx.arange(numbers.size) + numbers, numbers):
        if int(ids.min()) >= 0 and int(ids.max()) < vocabulary:
            return Guesses(ids, vocabulary)
    raise ValueError("names ids that the target lacks")


def output_of(own: Any, guesses: Guesses | None, tap: Any) -> Output:
    """A head's output head: its own, or what it needs of the target's.

    Args:
        tap: shows the target's.
    """
    if own is None:
        own = tap.logits if guesses is None else tap.logits_of(guesses.targets)
    output: Output = own
    return output


def chain_output(own: Any, guesses: Guesses | None, normed: Output, tap: Any) -> Output:
    """From what a step puts out to logits of the target's vocabulary."""
    output = output_of(own, guesses, tap)
    if guesses is None:
        return lambda out: output(normed(out))
    return lambda out: guesses.whole(output(normed(out)))
