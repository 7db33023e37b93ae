"""What every acceptance rule offers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from ..noise import Noise


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a pass, on the device."""

    accepted: mx.array
    """int32 scalar: how many drafted tokens are accepted."""
    token: mx.array
    """uint32 scalar: the correction after them, or the bonus token."""


class Rule(Protocol):
    """An acceptance rule for chains, as operations on the device without a host round trip."""

    name: str
    keeps_q: bool
    """Whether a sampling drafter must keep the distributions that it drew from."""

    def draft_noise(self, noise: Noise) -> Callable[[], mx.array] | None:
        """Computes the Gumbel rows [rows, V] for a draft model to draw with; None: it takes its
        best token."""
        ...

    def accept(
        self, scores: mx.array, drafted: mx.array, log_q: mx.array | None, noise: Noise | None
    ) -> Verdict:
        """Judge a chain of K drafted tokens.

        Args:
            scores: [K + 1, V] from ``Sampling.scores`` or ``weights``: row i judges drafted token
                i, the last row gives the bonus token.
            drafted: [K] uint32.
            log_q: [K, V] log-probabilities that the tokens were drawn from, up to a constant in
                each row; None if they were not drawn.
            noise: the pass's noise; None when greedy.
        """
        ...
