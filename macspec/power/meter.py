"""Reads a source once a second and says what a stretch of work took.

It belongs to the front end: a reading may hold Python's lock for milliseconds, which must not
stop decoding. Nothing here waits for a source but ``settle``, and that for seconds at most.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from .clocks import ClockWatch
from .energy import Energy
from .history import History, Watts
from .idle import Idle
from .source import NoSource, PowerSource

PERIOD = 1.0
"""Seconds between two readings."""

SETTLING = 2.5
"""Seconds that rails which publish in batches get to close a window."""

FAILURES = 3
"""Failed readings in a row after which a source counts as dead."""

LOOKING = "the source of power readings is still being looked for"


class Meter:
    """Watts now, and joules between two moments of its clock.

    Args:
        find: gives the source; called by the meter's own thread, as it may take seconds.
        clock: monotonic seconds, the clock of the source's readings.
        wall: seconds of the calendar.
        idle: what the machine takes when nothing computes, if that is known already.
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
        self._history = History(NoSource(LOOKING), wall)
        self._reason: str | None = LOOKING
        self._failures = 0
        self._resting: float | None = None

    @property
    def reason(self) -> str | None:
        """Why nothing is measured, in one sentence; None while something is."""
        return self._reason

    @property
    def source(self) -> str:
        """The source's name."""
        return self._history.source.name

    @property
    def idle(self) -> Idle | None:
        """What the machine takes when nothing computes; None until it is known."""
        return self._history.idle

    def start(self) -> None:
        """Look for a source and read it once a second, in a thread of its own."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="power", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the readings and let the source go."""
        self._leaving = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(PERIOD)

    def open(self) -> bool:
        """Find the source; False where there is none. ``start`` does this."""
        try:
            source = self._find()
            reason = source.available()
        except Exception as error:  # whatever a driver raises, a chat goes on
            reason = f"the source of power readings failed: {error}"
            source = NoSource(reason)
        with self._lock:
            self._history = History(source, self._wall, self._known)
            self._reason = reason
            self._watch.jumped()  # what passed until now concerns no reading
        return reason is None

    def sample(self) -> bool:
        """Read the source; False once it is dead. ``start`` does this once a second."""
        try:
            reading = self._history.source.read()
        except Exception as error:  # whatever a driver raises, a chat goes on
            return self._failed(error)
        with self._lock:
            self._failures = 0
            self._history.add(reading, self._watch.jumped())
            self._lock.notify_all()
        return True

    def now(self) -> float:
        """The moment now, on the meter's clock."""
        return self._clock()

    def mark(self) -> float:
        """The moment now, as a border of a window: the source is read as soon as can be."""
        self._wake.set()
        return self._clock()

    def begin(self) -> float:
        """The moment now, at which work begins; idleness ends here."""
        now = self.mark()
        with self._lock:
            if self._resting is not None:
                self._history.rested(self._resting, now)
                self._resting = None
        return now

    def rest(self) -> None:
        """Nothing computes from now on, until the next ``begin``: this gives the baseline."""
        with self._lock:
            self._resting = self._clock()

    def watts(self) -> dict[str, Watts]:
        """Every rail of the source, now."""
        with self._lock:
            return self._history.watts(self._clock())

    def energy(self, start: float, end: float, tokens: int) -> Energy:
        """What a window took.

        Args:
            start, end: from ``begin``, ``mark`` or ``now``.
            tokens: what the window brought.
        """
        with self._lock:
            energy = self._history.energy(start, end, tokens)
            if energy.joules is None and not self._history.source.rails:
                return replace(energy, reason=self._reason)
            return energy

    def settled(self, start: float, end: float) -> bool:
        """Whether every rail that moved in a window has moved after it too."""
        with self._lock:
            return self._reason is not None or self._history.settled(start, end)

    def settle(self, start: float, end: float) -> None:
        """Wait until a window is settled, for ``SETTLING`` seconds after its end at most."""
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
            self._reason = f"{self.source} stopped answering: {error}"
            self._history.die(self._reason)
            self._lock.notify_all()
        return False
