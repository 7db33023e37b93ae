"""The energy of replies, where power can be measured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from macspec.power import ByMode, Energy, Meter, ReplyEnergy, ReplyWatch, remember_idle
from macspec.power.meter import SEARCHING, SETTLING
from macspec.power.source import BATCHED_LEAST
from macspec.worker.messages import MeasuredEnergy

from ..panel.panelstate import PanelState

LOOK = 0.25
"""Seconds between two checks whether a reply's energy is final."""


class EnergyMeter:
    """A power meter, if there is one, and the energy of this session's replies by mode.

    Args:
        tell: gets what each reply took.
    """

    def __init__(
        self,
        meter: Meter | None,
        tell: Callable[[MeasuredEnergy], object] = lambda measured: None,
    ) -> None:
        self._meter, self._tell = meter, tell
        self._started = False
        self.by_mode = ByMode()
        self._watch: ReplyWatch | None = None
        self._energy: Energy | None = None
        """Of the decode of the last reply, once it is final."""
        self._settling: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start measuring; finding a source takes a while."""
        if self._meter is not None and not self._started:
            self._started = True
            self._meter.start()

    @property
    def reason(self) -> str:
        """Why nothing is measured; empty while something is."""
        if self._meter is None:
            return "power is not measured here"
        return self._meter.reason or ""

    @property
    def unmeasured(self) -> str | None:
        """A line for those who want few joules where none are measured."""
        if not self.reason or self.reason == SEARCHING:
            return None
        return f"energy is not measured, so the objective is speed: {self.reason}"

    def watch(self) -> ReplyWatch | None:
        """A watch over the reply that is requested now."""
        self._watch = None if self._meter is None else ReplyWatch(self._meter)
        self._energy = None
        return self._watch

    def drop(self) -> None:
        """End the watch: what is measured is no longer one reply's."""
        if self._watch is not None:
            self._watch.end()
        self._watch = None

    def settle(self, watch: ReplyWatch | None, known: Callable[[ReplyEnergy], None]) -> None:
        """Report the energy of a reply once it is final, seconds after its end at most."""
        if watch is not None:
            task = asyncio.get_running_loop().create_task(self._settle(watch, known))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    def shown_in(self, state: PanelState) -> PanelState:
        """The same numbers, with those of power."""
        meter = self._meter
        if meter is None:
            return replace(state, energy_reason=self.reason)
        energy = self._energy
        if self._watch is not None:
            energy = self._watch.result().decode
        return replace(
            state,
            watts=meter.watts(),
            joules_per_token=None if energy is None else energy.joules_per_token,
            net_joules_per_token=None if energy is None else energy.net_joules_per_token,
            plain_joules_per_token=self.by_mode.joules_per_token(speculative=False),
            energy_reason=self.reason or (energy and energy.reason) or "",
            energy_source=meter.source,
        )

    async def close(self) -> None:
        """Report what is known now, and stop measuring."""
        for task in list(self._settling):
            task.cancel()
        for task in list(self._settling):
            with suppress(asyncio.CancelledError):
                await task
        if self._meter is not None and self._started:
            if self._meter.idle is not None:
                remember_idle(self._meter.idle)
            self._meter.stop()

    def teach(self, watch: ReplyWatch, energy: ReplyEnergy) -> None:
        """Tell the engine what a reply took, if it was long enough for all rails."""
        decode = energy.decode
        whole = decode.seconds >= BATCHED_LEAST and not energy.jumped
        if whole and watch.rounds and decode.joules is not None:
            self._tell(MeasuredEnergy(decode.joules, watch.rounds))

    async def _settle(self, watch: ReplyWatch, known: Callable[[ReplyEnergy], None]) -> None:
        with suppress(asyncio.CancelledError):
            await final(watch)
        energy = watch.result()
        if self._watch is watch:
            self._watch, self._energy = None, energy.decode
        self.teach(watch, energy)
        self.by_mode.add(energy.decode, speculative=energy.speculative)
        known(energy)


async def final(watch: ReplyWatch) -> None:
    """Wait until the energy of a reply is final, for seconds at most."""
    left = SETTLING
    while left > 0 and not watch.settled:
        await asyncio.sleep(LOOK)
        left -= LOOK
