"""Reads a power source once a second and measures the energy of windows of time and of replies.

It runs in the front end, as a reading may hold Python's lock for milliseconds, which must not
delay decoding. Only ``settle`` waits for a source, for seconds at most.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from ..events import Event, Finished, Prefilled, Round
from ..stats import ReplyCounter
from .energy import Energy, ReplyEnergy
from .history import History, Idle
from .source import NoSource, PowerSource

PERIOD = 1.0
"""Seconds between two readings."""

SETTLING = 2.5
"""Seconds to wait after a window for rails that publish in batches."""

FAILURES = 3
"""Consecutive failed readings after which a source counts as dead."""

JUMP = 1.0
"""Seconds by which the clocks may diverge between two calls before it counts as a jump."""

SEARCHING = "still looking for a power source"


class ClockWatch:
    """Compares the wall clock with the monotonic one, which stops while the machine sleeps."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._clock, self._wall = clock, wall
        self._last = clock(), wall()

    def jumped(self) -> bool:
        """Whether the machine slept, or its clock was set, since the last call."""
        before, self._last = self._last, (self._clock(), self._wall())
        seconds, wall = (now - then for now, then in zip(self._last, before, strict=True))
        return abs(wall - seconds) > JUMP


class Meter:
    """Watts now, and joules between two moments of its clock.

    Args:
        find: returns the source; called on the meter's own thread, as it may take seconds.
        clock: monotonic seconds, the clock of the source's readings.
        idle: the baseline of an earlier session.
    """

    def __init__(
        self,
        find: Callable[[], PowerSource],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        idle: Idle | None = None,
    ) -> None:
        self._find, self._clock, self._wall, self._known = find, clock, wall, idle
        self._lock = threading.Condition()
        self._wake = threading.Event()
        self._leaving = False
        self._thread: threading.Thread | None = None
        self._watch = ClockWatch(clock, wall)
        self._history = History(NoSource(SEARCHING), wall)
        self.reason: str | None = SEARCHING
        """Why nothing is measured; None while something is."""
        self._failures = 0
        self._resting: float | None = None

    @property
    def source(self) -> str:
        return self._history.source.name

    @property
    def idle(self) -> Idle | None:
        """The idle baseline; None until it is known."""
        return self._history.idle

    def start(self) -> None:
        """Find a source and read it once a second, on a thread of its own."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="power", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop reading and close the source."""
        self._leaving = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(PERIOD)

    def open(self) -> bool:
        """Find the source; False: there is none. ``start`` does this."""
        try:
            source = self._find()
            reason = source.available()
        except Exception as error:  # a chat goes on, whatever a driver raises
            reason = f"the power source failed: {error}"
            source = NoSource(reason)
        with self._lock:
            self._history = History(source, self._wall, self._known)
            self.reason = reason
            self._watch.jumped()  # what passed until now affects no reading
        return reason is None

    def sample(self) -> bool:
        """Read the source; False once it is dead. ``start`` does this once a second."""
        try:
            reading = self._history.source.read()
        except Exception as error:  # a chat goes on, whatever a driver raises
            return self._failed(error)
        with self._lock:
            self._failures = 0
            self._history.add(reading, self._watch.jumped())
            self._lock.notify_all()
        return True

    def now(self) -> float:
        """The time on the meter's clock."""
        return self._clock()

    def mark(self) -> float:
        """The time, as the border of a window: the source is read as soon as possible."""
        self._wake.set()
        return self._clock()

    def begin(self) -> float:
        """The time, as the begin of work, which ends idleness."""
        now = self.mark()
        with self._lock:
            if self._resting is not None:
                self._history.rested(self._resting, now)
                self._resting = None
        return now

    def rest(self) -> None:
        """Measure the idle baseline from now until the next ``begin``: there is no work."""
        with self._lock:
            self._resting = self._clock()

    def watts(self) -> dict[str, float]:
        """Power now, of every rail that moves."""
        with self._lock:
            return self._history.watts(self._clock())

    def energy(self, start: float, end: float, tokens: int) -> Energy:
        """Energy of a window, in which this many tokens were generated."""
        with self._lock:
            energy = self._history.energy(start, end, tokens)
            if energy.joules is None and not self._history.source.rails:
                return replace(energy, reason=self.reason)
            return energy

    def settled(self, start: float, end: float) -> bool:
        """Whether the energy of a window is final."""
        with self._lock:
            return self.reason is not None or self._history.settled(start, end)

    def settle(self, start: float, end: float) -> None:
        """Wait until a window is final, at most ``SETTLING`` seconds after its end."""
        while not self.settled(start, end):
            left = end + SETTLING - self._clock()
            if left <= 0:
                return
            with self._lock:
                self._lock.wait(min(left, PERIOD))

    def _run(self) -> None:
        found = self.open()
        while found and not self._leaving and self.sample():
            self._wake.wait(PERIOD)
            self._wake.clear()
        self._history.source.close()

    def _failed(self, error: Exception) -> bool:
        with self._lock:
            self._failures += 1
            if self._failures < FAILURES:
                return True
            self.reason = f"{self.source} stopped answering: {error}"
            self._history.die(self.reason)
            self._lock.notify_all()
        return False


class ReplyWatch:
    """Measures the energy of one reply from its events, from when this is made.

    Events may come late, all by the same time: durations are taken from what they say.
    """

    def __init__(self, meter: Meter, clocks: ClockWatch | None = None) -> None:
        self._meter = meter
        self._clocks = clocks or ClockWatch()
        self._jumped = False
        self._end = meter.begin()
        self._counter = ReplyCounter()
        self._seconds: dict[tuple[str | None, int], float] = {}
        self._ended = False

    @property
    def rounds(self) -> tuple[tuple[str | None, int, float], ...]:
        """Drafter, depth, and the seconds that its rounds of the decode took together."""
        return tuple((*kind, seconds) for kind, seconds in self._seconds.items())

    def see(self, event: Event) -> None:
        self._jumped |= self._clocks.jumped()
        self._counter.see(event)
        if isinstance(event, Prefilled):
            self._end = self._meter.mark()
        elif isinstance(event, Round):
            self._end = self._meter.now()
            if self._counter.passes > 1:
                kind = event.drafter, event.depth
                self._seconds[kind] = self._seconds.get(kind, 0.0) + event.seconds
        elif isinstance(event, Finished):
            self.end()

    def end(self) -> None:
        """End the measurement, after an interrupt too."""
        if not self._ended:
            self._ended = True
            self._meter.mark()
            self._meter.rest()

    @property
    def settled(self) -> bool:
        """Whether the result is final; until then it may lack rails."""
        return self._meter.settled(self._end - self._counter.decode, self._end)

    def settle(self) -> None:
        """Wait for that, at most for seconds."""
        self._meter.settle(self._end - self._counter.decode, self._end)

    def result(self) -> ReplyEnergy:
        """The reply's energy, as far as it is known now."""
        count = self._counter
        start = self._end - count.decode
        read = count.prompt_tokens - count.cached_tokens
        return ReplyEnergy(
            self._meter.energy(start - (count.prefill or 0.0), start, read),
            self._meter.energy(start, self._end, count.tokens - count.first_tokens),
            count.drafted > 0,
            self._jumped,
        )
