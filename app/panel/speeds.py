"""How fast a reply comes, now and over time. Times are the engine's own, not those of arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

STEP = 0.5
"""Seconds of decode that one value of the history stands for."""

NOW = 1.0
"""Seconds that the speed now is taken over, at least."""

ROUNDING = 1e-9

LONGEST = 240
"""Values of the history; older ones go."""


class Speeds:
    """Tokens a second over the last second, and for each half second of decode."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=LONGEST)
        self._marks: deque[tuple[int, str]] = deque()
        self._gone = 0
        """Values that were there before the first one."""
        self._recent: deque[tuple[int, float]] = deque()
        self._recent_tokens, self._recent_seconds = 0, 0.0
        self._tokens, self._seconds = 0.0, 0.0

    def begin(self) -> None:
        """Another reply begins: the history goes on where it was, the last second does not."""
        self._recent.clear()
        self._recent_tokens, self._recent_seconds = 0, 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """A pass brought so many tokens in so many seconds."""
        self._recent.append((tokens, seconds))
        self._recent_tokens += tokens
        self._recent_seconds += seconds
        while self._recent_seconds - self._recent[0][1] >= NOW:
            old, took = self._recent.popleft()
            self._recent_tokens -= old
            self._recent_seconds -= took
        self._spread(tokens, seconds)

    def mark(self, what: str) -> None:
        """Something was changed now."""
        self._marks.append((self._gone + len(self._values), what))

    @property
    def now(self) -> float | None:
        """Tokens a second over the last second or so; None before there are any."""
        seconds = self._recent_seconds
        return self._recent_tokens / seconds if seconds > 0 else None

    @property
    def values(self) -> Sequence[float]:
        """The history, the newest last."""
        return tuple(self._values)

    @property
    def marks(self) -> Sequence[tuple[int, str]]:
        """What was changed, and at which of the values; at the last one while the next is not
        there yet."""
        while self._marks and self._marks[0][0] < self._gone:
            self._marks.popleft()
        last = len(self._values) - 1
        if last < 0:
            return ()
        return tuple((min(at - self._gone, last), what) for at, what in self._marks)

    def _spread(self, tokens: float, seconds: float) -> None:
        """Share a pass among the steps that it lies in."""
        rate = tokens / seconds if seconds > 0 else 0.0
        while self._seconds + seconds >= STEP - ROUNDING:
            part = STEP - self._seconds
            self._push((self._tokens + rate * part) / STEP)
            seconds -= part
            self._tokens, self._seconds = 0.0, 0.0
        self._tokens += rate * seconds
        self._seconds += seconds

    def _push(self, value: float) -> None:
        if len(self._values) == LONGEST:
            self._gone += 1
        self._values.append(value)
