"""How a session of macspec drafts and judges, for as long as it is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..control import Ledger
from ..kernels import Kernels
from ..models import Pair
from ..session import Session


@dataclass(frozen=True, slots=True)
class Way:
    """The settings of ``Session`` that an arm has."""

    method: str = "auto"
    depth: int | str = "auto"
    rule: str = "block"
    trees: bool = True
    kv_bits: int | None = None
    kernels: Kernels | str = "auto"

    @property
    def chooses(self) -> bool:
        """Whether the controller decides how deep to draft."""
        return self.method != "off" and self.depth == "auto"

    def session(
        self,
        pair: Pair,
        clock: Callable[[], float],
        ledger: Ledger | None = None,
        kind: type[Session] = Session,
    ) -> Session:
        """A session of this kind, which knows no past replies.

        With them it would draft from its own answers to the same question.

        Raises:
            BadOptionError: this pair cannot do it.
        """
        return kind(
            pair,
            method=self.method,
            depth=self.depth,
            rule=self.rule,
            trees=self.trees,
            kv_bits=self.kv_bits,
            ledger=ledger,
            clock=clock,
            kernels=self.kernels,
        )

    def describe(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "program": "macspec",
            "method": self.method,
            "depth": self.depth,
            "rule": self.rule,
            "trees": self.trees,
            "kv_bits": self.kv_bits,
        }
