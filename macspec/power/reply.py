"""The energy of one reply, from the events that it emits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..events import Event, Finished, Prefilled, Round
from .clocks import ClockWatch
from .energy import Energy
from .meter import Meter


@dataclass(frozen=True, slots=True)
class ReplyEnergy:
    """Of prefill and decode apart."""

    prefill: Energy
    """Its tokens are the prompt's that were not cached."""
    decode: Energy
    """From the first token to the last; its tokens are those after the first pass."""
    speculative: bool
    """Whether anything was drafted."""
    jumped: bool
    """Whether the machine slept or its clock was set meanwhile: then no time of the reply holds
    either, and no latency or cost should be taken from it."""

    def as_dict(self) -> dict[str, Any]:
        """The same, ready for JSON."""
        return {
            "prefill": self.prefill.as_dict(),
            "decode": self.decode.as_dict(),
            "clock_jumped": self.jumped,
        }


class ReplyWatch:
    """Listens to a reply, marks its borders on a meter, and says what it took.

    Events may come late, all alike: how long things took is taken from what they say.

    Args:
        meter: running. Make the watch when the reply is asked for.
        clocks: the watch over the machine's sleep; None: a new one.
    """

    def __init__(self, meter: Meter, clocks: ClockWatch | None = None) -> None:
        self._meter = meter
        self._clocks = clocks or ClockWatch()
        self._jumped = False
        self._end = meter.begin()
        self._prefill = self._decode = 0.0
        self._ended = False
        self._prompt = self._tokens = self._passes = self._drafted = 0

    def see(self, event: Event) -> None:
        """Take the reply's next event."""
        self._jumped |= self._clocks.jumped()
        if isinstance(event, Prefilled):
            self._end = self._meter.mark()
            self._prefill = event.seconds
            self._prompt = event.prompt_tokens - event.cached_tokens
        elif isinstance(event, Round):
            self._end = self._meter.now()
            self._passes += 1
            self._drafted += event.drafted
            if self._passes > 1:  # the prompt's last pass brings the first tokens
                self._decode += event.seconds
                self._tokens += len(event.tokens)
        elif isinstance(event, Finished):
            self.end()

    def end(self) -> None:
        """Nothing more comes, after an interrupt too."""
        if not self._ended:
            self._ended = True
            self._meter.mark()
            self._meter.rest()

    @property
    def settled(self) -> bool:
        """Whether the result is final; until then it may still lack some rails."""
        return self._meter.settled(self._end - self._decode, self._end)

    def settle(self) -> None:
        """Wait until the result is final, for seconds at most."""
        self._meter.settle(self._end - self._decode, self._end)

    def result(self) -> ReplyEnergy:
        """What the reply took, as far as it is known now."""
        start = self._end - self._decode
        return ReplyEnergy(
            self._meter.energy(start - self._prefill, start, self._prompt),
            self._meter.energy(start, self._end, self._tokens),
            self._drafted > 0,
            self._jumped,
        )
