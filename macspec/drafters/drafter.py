"""What a drafter is given and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from ..control import Offer
from ..kernels import Draw, Walks
from ..sampling import Sampling

Dispatch = Callable[..., None]
"""Starts the evaluation of arrays without waiting for it."""


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a proposal may depend on."""

    tokens: Sequence[int]
    """The committed tokens, the prompt's included."""
    sampling: Sampling
    noise: Callable[[], mx.array] | None
    """Computes Gumbel rows [rows, V] to draw with, one per drafted token; None: take the best
    token."""
    keeps_q: bool
    """Whether the rule needs the distributions that tokens are drawn from."""
    dispatch: Dispatch
    draw: Draw | None = None
    """Draws the tokens of a chain, noise included; None: argmax with ``noise`` does."""
    walks: Walks | None = None
    """Draws those of a block, noise included; None: as those of a chain."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Guesses for the next tokens, a chain or a small tree; lazy where a model makes them."""

    tokens: mx.array
    """[K] uint32."""
    log_q: mx.array | None = None
    """[K, V], up to a constant in each row: what the tokens were drawn from; None where they are
    point masses."""
    parents: tuple[int, ...] | None = None
    """Of a tree, as in ``verification.Tree``; the drafter's own chain, which its state follows,
    comes first and in order. None: a chain."""


class Drafter(Protocol):
    """Proposes tokens. It sees every committed token by the time it is asked next."""

    name: str

    def offer(self, tokens: Sequence[int]) -> Offer:
        """What it could propose after these tokens; known on the host, without a model."""
        ...

    def propose(self, context: Context, depth: int) -> Proposal | None:
        """Up to ``depth`` tokens, dispatched but not awaited; None if there is no proposal."""
        ...

    def observe(self, committed: Sequence[int], drafted: int, accepted: int) -> None:
        """Learn what was accepted of its newest proposal, a chain of ``drafted`` tokens.

        Args:
            committed: tokens of the round; fewer than ``accepted`` + 1 where the reply ended in it.
            accepted: how many were accepted, beyond the end of the reply as well.
        """
        ...

    def rollback(self, length: int) -> None:
        """Only the first ``length`` tokens of what was read or drafted are still valid."""
        ...
