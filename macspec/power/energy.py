"""Joules of a stretch of work, what they are of, and what speculation saves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Energy:
    """What a window took, of the whole machine: other programs' share is in it."""

    seconds: float
    tokens: int
    """Tokens that the window brought."""
    source: str
    basis: str
    """What the source's numbers are."""
    rails: Mapping[str, float] = field(default_factory=dict)
    """Joules by rail, of those that were measured."""
    counted: tuple[str, ...] = ()
    """The rails whose sum is ``joules``."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Why a rail was not measured, or is not in the sum."""
    idle: Mapping[str, float] = field(default_factory=dict)
    """Watts by rail when nothing was computed, where that was measured."""
    reason: str | None = None
    """Why there are no joules; None where there are."""

    @property
    def joules(self) -> float | None:
        """Of all counted rails."""
        return self._sum(self.counted)

    @property
    def net_joules(self) -> float | None:
        """The same without what the machine takes when idle; None where that is not known."""
        if not self.counted or any(rail not in self.idle for rail in self.counted):
            return None
        idle = sum(self.idle[rail] for rail in self.counted) * self.seconds
        joules = self.joules
        return None if joules is None else max(joules - idle, 0.0)

    @property
    def watts(self) -> float | None:
        """Mean power of all counted rails."""
        joules = self.joules
        return None if joules is None else joules / self.seconds

    @property
    def joules_per_token(self) -> float | None:
        return self._per_token(self.joules)

    @property
    def net_joules_per_token(self) -> float | None:
        return self._per_token(self.net_joules)

    @property
    def of(self) -> str:
        """The counted rails in words."""
        *first, last = self.counted or ("nothing",)
        return f"{', '.join(first)} and {last}" if first else last

    def as_dict(self) -> dict[str, Any]:
        """The same, ready for JSON."""
        return {
            "seconds": self.seconds,
            "tokens": self.tokens,
            "source": self.source,
            "basis": self.basis,
            "rails": dict(self.rails),
            "counted": list(self.counted),
            "missing": dict(self.missing),
            "idle_watts": dict(self.idle),
            "joules": self.joules,
            "net_joules": self.net_joules,
            "joules_per_token": self.joules_per_token,
            "net_joules_per_token": self.net_joules_per_token,
            "reason": self.reason,
        }

    def _sum(self, rails: tuple[str, ...]) -> float | None:
        if self.reason is not None or not rails:
            return None
        return sum(self.rails[rail] for rail in rails)

    def _per_token(self, joules: float | None) -> float | None:
        return None if joules is None or self.tokens <= 0 else joules / self.tokens


@dataclass(frozen=True, slots=True)
class Saving:
    """Plain against speculative, over the same rails."""

    plain: float
    """Joules per token, gross."""
    speculative: float
    rails: tuple[str, ...]

    @property
    def share(self) -> float:
        """The part of the plain energy that is saved; negative where it costs more."""
        return 1 - self.speculative / self.plain


class ByMode:
    """The replies of a session, plain ones and speculative ones apart.

    Rails are compared only where they were measured in every reply that counts: a reply without
    joules, or without tokens, does not.
    """

    def __init__(self) -> None:
        self._replies: dict[bool, list[Energy]] = {False: [], True: []}

    def add(self, energy: Energy, *, speculative: bool) -> None:
        """Count a reply; ``speculative``: something was drafted in it."""
        if energy.joules_per_token is not None:
            self._replies[speculative].append(energy)

    def joules_per_token(self, *, speculative: bool) -> float | None:
        """Of all replies of a mode, over the rails that all of them have."""
        return self._mean(self._replies[speculative], self._common(self._replies[speculative]))

    def saving(self) -> Saving | str:
        """What speculation saves, or why that is not known."""
        replies = [*self._replies[False], *self._replies[True]]
        for speculative, name in ((False, "plain"), (True, "speculative")):
            if not self._replies[speculative]:
                return f"no {name} reply has been measured"
        rails = self._common(replies)
        means = [self._mean(self._replies[mode], rails) for mode in (False, True)]
        if means[0] is None or means[1] is None or means[0] <= 0:
            return "the replies have no measured rail in common"
        return Saving(means[0], means[1], rails)

    @staticmethod
    def _common(replies: list[Energy]) -> tuple[str, ...]:
        first = replies[0].counted if replies else ()
        return tuple(rail for rail in first if all(rail in each.counted for each in replies))

    @staticmethod
    def _mean(replies: list[Energy], rails: tuple[str, ...]) -> float | None:
        if not replies or not rails:
            return None
        joules = sum(each.rails[rail] for each in replies for rail in rails)
        return joules / sum(each.tokens for each in replies)
