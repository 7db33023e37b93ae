"""Energy of a window of time and of a reply, and plain and speculative decoding compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of a window of time, other programs' share included."""

    seconds: float
    tokens: int
    """Tokens generated in the window."""
    source: str
    basis: str
    """What the source's numbers cover."""
    rails: Mapping[str, float] = field(default_factory=dict)
    """Joules by rail, of the measured ones."""
    counted: tuple[str, ...] = ()
    """The rails whose sum is ``joules``."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Why a rail was not measured or is not in the sum."""
    idle_watts: Mapping[str, float] = field(default_factory=dict)
    """By rail, of the idle baseline, where measured."""
    reason: str | None = None
    """Why there are no joules; None: there are."""

    @property
    def joules(self) -> float | None:
        """The sum of all counted rails."""
        if self.reason is not None or not self.counted:
            return None
        return sum(self.rails[rail] for rail in self.counted)

    @property
    def net_joules(self) -> float | None:
        """Joules above the idle baseline; None: it is unknown."""
        joules = self.joules
        if joules is None or any(rail not in self.idle_watts for rail in self.counted):
            return None
        idle = sum(self.idle_watts[rail] for rail in self.counted) * self.seconds
        return max(joules - idle, 0.0)

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
        return {
            **asdict(self),
            "joules": self.joules,
            "net_joules": self.net_joules,
            "joules_per_token": self.joules_per_token,
            "net_joules_per_token": self.net_joules_per_token,
        }

    def _per_token(self, joules: float | None) -> float | None:
        return None if joules is None or self.tokens <= 0 else joules / self.tokens


@dataclass(frozen=True, slots=True)
class ReplyEnergy:
    """Energy of a reply, prefill and decode apart."""

    prefill: Energy
    """Its tokens are those of the prompt that were not cached."""
    decode: Energy
    """Its tokens are those after the first pass."""
    speculative: bool
    """Whether anything was drafted."""
    jumped: bool
    """Whether the machine slept, or its clock was set, meanwhile: all times of the reply, its
    latencies and costs included, are invalid then."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "prefill": self.prefill.as_dict(),
            "decode": self.decode.as_dict(),
            "clock_jumped": self.jumped,
        }


class ByMode:
    """Energy of a session's replies, plain and speculative ones apart.

    Replies without joules or tokens are left out.
    """

    def __init__(self) -> None:
        self._replies: dict[bool, list[Energy]] = {False: [], True: []}

    def add(self, energy: Energy, *, speculative: bool) -> None:
        """Add a reply; ``speculative``: something was drafted."""
        if energy.joules_per_token is not None:
            self._replies[speculative].append(energy)

    def joules_per_token(self, *, speculative: bool) -> float | None:
        """Mean over the replies of a mode and the rails they have in common."""
        return _mean(self._replies[speculative], self._replies[speculative])

    def compared(self) -> tuple[float | None, float | None]:
        """Joules per token of plain and of speculative replies, over the rails of all of them.

        If they have none in common, each over its own.
        """
        plain, speculative = self._replies.values()
        both = [*plain, *speculative]
        means = _mean(plain, both), _mean(speculative, both)
        if means[0] and means[1] is not None:
            return means
        return _mean(plain, plain), _mean(speculative, speculative)


def _mean(replies: list[Energy], others: list[Energy]) -> float | None:
    """Joules per token over the rails that all others have; None: there are none."""
    first = others[0].counted if others else ()
    rails = [rail for rail in first if all(rail in each.counted for each in others)]
    if not replies or not rails:
        return None
    joules = sum(each.rails[rail] for each in replies for rail in rails)
    return joules / sum(each.tokens for each in replies)
