"""Joules of the decode of each reply, as far as the machine's counters are quick enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..power import Meter
from .sample import Sample

WAIT = 64
"""Replies whose joules may still be open: counters move in steps of up to seconds."""


class EnergyLog:
    """Windows of a meter, and the samples that they belong to.

    Args:
        meter: running.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._open: list[tuple[float, float, Sample]] = []
        self._known: dict[int, Sample] = {}

    @property
    def reason(self) -> str | None:
        """Why nothing is measured; None while something is."""
        return self._meter.reason

    def begin(self) -> float:
        """A reply begins now."""
        return self._meter.begin()

    def end(self, mark: float, sample: Sample) -> None:
        """It is over, and this is its sample."""
        end = self._meter.mark()
        start = max(mark, end - sample.written.stats.seconds.decode)
        self._open.append((start, end, sample))
        while self._open and (len(self._open) > WAIT or self._meter.settled(*self._open[0][:2])):
            self._close()

    def settle(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples with their joules, after seconds of waiting at most."""
        if self._open:
            self._meter.settle(*self._open[-1][:2])
        while self._open:
            self._close()
        return [self._known.get(id(sample), sample) for sample in samples]

    def _close(self) -> None:
        start, end, sample = self._open.pop(0)
        stats = sample.written.stats
        speed = stats.decode_tokens_per_s or 0.0
        tokens = round(speed * stats.seconds.decode)
        energy = self._meter.energy(start, end, tokens)
        self._known[id(sample)] = replace(sample, energy=energy)
