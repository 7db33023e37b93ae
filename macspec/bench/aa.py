"""A method against itself: how often an interval holds 1.00, which is the truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .protocol import Protocol
from .report import speed_ratio
from .sample import Sample
from .statistics import Ratio

RUNS = 20

AGAIN = "#2"
"""Behind the name of the arm's double."""


@dataclass(frozen=True, slots=True)
class Held:
    """The runs at one temperature."""

    temperature: float
    forced: bool
    ratios: tuple[Ratio, ...]
    """Of each run that was finished, and has an interval."""

    @property
    def held(self) -> int:
        """In how many of them the interval holds 1.00."""
        return sum(it.holds(1.0) for it in self.ratios)

    def __str__(self) -> str:
        tail = ", forced" if self.forced else ""
        if not self.ratios:
            return f"temperature {self.temperature:g}{tail}: too few replies for an interval"
        values = [it.value for it in self.ratios]
        return (
            f"temperature {self.temperature:g}{tail}: 1.00 is in the interval in {self.held} of "
            f"{len(self.ratios)} runs; the ratios are {min(values):.3f} to {max(values):.3f}"
        )

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Held:
        """What ``as_dict`` gave."""
        ratios = tuple(Ratio(**it) for it in stored["ratios"])
        return cls(stored["temperature"], stored["forced"], ratios)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "temperature": self.temperature,
            "forced": self.forced,
            "runs": len(self.ratios),
            "held": self.held,
            "ratios": [it.as_dict() for it in self.ratios],
        }


def protocol_of(protocol: Protocol) -> Protocol:
    """The protocol of all runs together: each takes as many repeats as the given one has."""
    return replace(protocol, repeats=RUNS * protocol.repeats)


def held(samples: Sequence[Sample], arm: str, repeats: int) -> Iterator[Held]:
    """For each temperature, the runs of an arm against its double.

    Args:
        repeats: of one run.
    """
    kinds = sorted({(sample.temperature, sample.forced) for sample in samples})
    for temperature, forced in kinds:
        there = [it for it in samples if (it.temperature, it.forced) == (temperature, forced)]
        ratios = [_run(there, arm, range(at * repeats, (at + 1) * repeats)) for at in range(RUNS)]
        yield Held(temperature, forced, tuple(it for it in ratios if it is not None and it.known))


def _run(samples: Sequence[Sample], arm: str, repeats: range) -> Ratio | None:
    members = [it for it in samples if it.repeat in repeats]
    mine = [it for it in members if it.arm == arm + AGAIN]
    plain = {it.cell: it for it in members if it.arm == arm}
    if len({it.repeat for it in mine}) < len(repeats):
        return None
    return speed_ratio(mine, plain)
