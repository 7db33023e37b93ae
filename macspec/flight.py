"""A pass that was dispatched and whose outcome has not been read yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from .depth import Plan
from .drafters import Proposal
from .verification import Verdict


class Dispatcher:
    """Starts evaluations without waiting, and remembers when the first one began."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.began: float | None = None

    def __call__(self, *arrays: mx.array) -> None:
        if self.began is None:
            self.began = self._clock()
        mx.async_eval(*arrays)


@dataclass(frozen=True, slots=True)
class Landing:
    """What came of a round."""

    accepted: int
    """Drafted tokens that stand."""
    tokens: list[int]
    """Those, and the target's own token after them."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A round between its dispatch and its landing."""

    plan: Plan
    depth: int
    """Tokens really drafted."""
    outcome: mx.array
    """int32 [2 + depth]: accepted, next token, drafted tokens."""
    token: mx.array
    """uint32 [1]: the next token, for a pass that is launched before this one has landed."""
    began: float
    """When the device was first given work for it."""

    @classmethod
    def launch(
        cls, plan: Plan, proposal: Proposal, verdict: Verdict, dispatch: Dispatcher
    ) -> Flight:
        """Dispatch a judged pass."""
        token = verdict.token.reshape(1)
        parts = (verdict.accepted.reshape(1), token, proposal.tokens)
        outcome = mx.concatenate([part.astype(mx.int32) for part in parts])
        dispatch(outcome)
        assert dispatch.began is not None
        return cls(plan, proposal.tokens.shape[0], outcome, token, dispatch.began)

    def land(self) -> Landing:
        """Wait for the outcome: the one host synchronisation of a round."""
        outcome: Any = self.outcome.tolist()
        accepted, token, *drafted = outcome
        return Landing(accepted, [*drafted[:accepted], token])
