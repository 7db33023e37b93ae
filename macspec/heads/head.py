"""What every head is: a module that steps from a hidden row and a token to the next ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import mlx.core as mx

from .guesses import Guesses, Output

Variant = Mapping[str, Any]
"""How a head's files are read: what they leave open, and what is taken for it."""


class Depth(Protocol):
    """A head that drafts one token. Row i belongs to the hidden row of position i and token i + 1.

    ``make_cache`` makes the caches of its layers, as a model's does.
    """

    def __call__(self, hidden: mx.array, embedded: mx.array, cache: Sequence[Any]) -> mx.array:
        """Step from hidden rows and embedded tokens, [1, n, width] each.

        Returns:
            [1, n, width]: what the next step takes.
        """
        ...

    def output(self, tap: Any) -> Output:
        """What makes logits [n, vocabulary] of what a step put out, [n, width].

        Args:
            tap: the target's, whose output head may be needed.
        """
        ...


class Head(Protocol):
    """A head that drafts a chain."""

    name: str
    """The drafting method."""
    wanted: tuple[int, ...]
    """Which hidden rows it reads; see ``macspec.tap``."""
    width: int
    """Numbers in a row that a step takes."""
    guesses: Guesses | None
    """The ids that it guesses; None: all."""

    @property
    def depths(self) -> Sequence[Depth]:
        """What drafts the first token, the second and so on; one that drafts all of them."""
        ...

    def embedded(self, tokens: mx.array, embedding: Callable[[mx.array], mx.array]) -> mx.array:
        """Rows [n, width] for ids [n].

        Args:
            embedding: the target's.
        """
        ...

    def enter(self, rows: Sequence[mx.array]) -> mx.array:
        """What a step takes, [n, width], for rows of the target, [n, width] for each wanted one."""
        ...

    @property
    def reading(self) -> Variant:
        """How its files are read."""
        ...

    def alternatives(self) -> Iterator[Variant]:
        """Other readings that are as likely: the one that agrees most is taken."""
        ...

    def variants(self) -> Iterator[Variant]:
        """All readings, to be tried where it agrees too little."""
        ...

    def choose(self, variant: Variant) -> None:
        """Read the files that way."""
        ...
