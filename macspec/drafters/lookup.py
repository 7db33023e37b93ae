"""Drafters that look tokens up instead of computing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from .drafter import Drafter


@runtime_checkable
class Lookup(Drafter, Protocol):
    """A drafter whose guess is known on the host, at no model cost."""

    def continuation(self, tokens: Sequence[int], depth: int) -> tuple[list[int], list[float]]:
        """Up to ``depth`` tokens that may follow, and the chance that each stands."""
        ...
