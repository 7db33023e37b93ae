"""What a plain step takes: the unit of all other costs."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

RECENT = 15
"""Plain rounds, or means of a run of them, that are remembered."""

NEAR = 0.2
"""Plain rounds tell what one costs now at contexts that are longer or shorter by this share at
most, where `EMPTY` tokens are added to both."""

EMPTY = 512
"""Tokens of context that a pass hardly notices beside the weights."""

ANCHORS = 5
"""Newest plain rounds, at contexts like this one, whose median is a plain step."""

RUN = 4
"""Plain rounds that are clocked together, each launched ahead and with another behind it."""

ALONE = 1.05
"""A plain round by itself over one of a row, until they have been compared: counts for one
comparison."""

COMPARISONS = 9
"""Newest comparisons of the two whose median counts."""

SURE = 2
"""Comparisons with which the median is good enough."""

MOST = 1.5
"""The most that a comparison is believed, so that a hiccup counts little."""


class PlainStep:
    """Seconds of a plain round as of late: in a row of them, each launched ahead of the one before.

    A round by itself takes longer. The device waits for the host before it, and while its pass is
    being built. Where drafting goes on there are no others, so how much longer is learned, too.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque(maxlen=RECENT)
        """Context length and seconds."""
        self._run: list[float] = []
        """Seconds of the newest rounds of a row."""
        self._lone: tuple[int, float] | None = None
        """Context length and seconds of a round by itself, if only plain ones followed."""
        self._alone: deque[float] = deque(maxlen=COMPARISONS)
        """Seconds of such a round over those of one of the row after it."""

    @property
    def newest(self) -> float | None:
        """Seconds, where the newest plain round was; None before the first."""
        return self.at(self._seen[-1][0]) if self._seen else None

    def at(self, length: int) -> float | None:
        """The same at this context length; None where none was near it of late."""
        near = [seconds for where, seconds in self._seen if _near(where, length)]
        return statistics.median(near[-ANCHORS:]) if near else None

    @property
    def alone(self) -> float:
        """A round by itself, in plain steps; at least 1."""
        return drawn(ALONE, self._alone, 1.0)

    @property
    def compares(self) -> bool:
        """Whether that is too little known: a row should follow a round by itself."""
        return len(self._alone) < SURE

    def observe(self, length: int, seconds: float, overlaps: int) -> None:
        """A plain round took so many seconds.

        Args:
            overlaps: 1 if it was launched ahead, and 1 if another was behind it. Where both are
                so, only the time of several rounds says what one takes. Where one is, nothing
                does: the first of a row may land as late as the second should, the last at once.
        """
        if overlaps == 0:
            self._seen.append((length, seconds / self.alone))
            self._lone, self._run = (length, seconds), []
        elif overlaps == 2:
            self._run.append(seconds)
        if len(self._run) < RUN:
            return
        mean, self._run = statistics.mean(self._run), []
        self._seen.append((length, mean))
        if self._lone is not None and _near(self._lone[0], length):
            self._alone.append(min(max(self._lone[1] / mean, 1.0), MOST))
        self._lone = None

    def interrupted(self) -> None:
        """A round was not plain."""
        self._lone = None

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"plain": list(self._seen), "alone": list(self._alone)}

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Take over what ``as_dict`` gave; how long a round by itself takes may be missing.

        Raises:
            ValueError, TypeError, KeyError: it is something else.
        """
        seen = [(int(positive(at)), positive(seconds)) for at, seconds in stored["plain"]]
        alone = [positive(ratio) for ratio in stored.get("alone", ())]
        self._seen = deque(seen, maxlen=RECENT)
        self._alone = deque(alone, maxlen=COMPARISONS)
        self._run, self._lone = [], None


def _near(a: int, b: int) -> bool:
    """Whether a plain round takes about as long at both context lengths."""
    return abs(math.log((a + EMPTY) / (b + EMPTY))) < NEAR


def drawn(guess: float, seen: Sequence[float], weight: float) -> float:
    """The median of what was seen, drawn towards a guess that counts for so many."""
    if not seen:
        return guess
    return (weight * guess + len(seen) * statistics.median(seen)) / (weight + len(seen))


def positive(value: float) -> float:
    """The value, if it is a cost.

    Raises:
        ValueError: it is not.
    """
    if not 0 < value < float("inf"):
        raise ValueError(f"{value} is no cost")
    return float(value)
