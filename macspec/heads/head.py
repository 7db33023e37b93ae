"""What every head is: a module that steps from a hidden row and a token to the next ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import mlx.core as mx

Variant = Mapping[str, Any]
"""Attributes of a head that files leave open, and their values."""


class Head(Protocol):
    """A head that drafts a chain. Row i belongs to the hidden row of position i and token i + 1."""

    name: str
    """The drafting method."""
    wanted: tuple[int, ...]
    """Which hidden rows it reads; see ``macspec.tap``."""
    layers: list[Any]

    def enter(self, rows: Sequence[mx.array]) -> mx.array:
        """What a step takes, [n, width], for rows of the target, [n, width] for each wanted one."""
        ...

    def __call__(self, hidden: mx.array, embedded: mx.array, cache: Sequence[Any]) -> mx.array:
        """Step from hidden rows and embedded tokens, [1, n, width] each.

        Returns:
            [1, n, width]: what the next step takes.
        """
        ...

    def logits(self, out: mx.array) -> mx.array | None:
        """Logits [n, vocabulary] of what a step put out, [n, width]; None: by ``normed``."""
        ...

    def normed(self, out: mx.array) -> mx.array:
        """What the target's output head takes, [n, width], of what a step put out."""
        ...

    def variants(self) -> Iterator[Variant]:
        """Other readings of its files, to be tried where this one agrees too little."""
        ...

    def choose(self, variant: Variant) -> None:
        """Read the files that way."""
        ...
