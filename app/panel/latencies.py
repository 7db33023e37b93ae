"""Inter-token latencies of a reply of any length, in little room."""

from __future__ import annotations

import math

FINENESS = 1.02
"""Ratio of the borders of a bin: a latency is known to one part in a hundred."""

SHORTEST = 1e-5
"""Seconds; shorter ones count as this."""

_LOG = math.log(FINENESS)


class Latencies:
    """Counts latencies in bins, so that a quantile costs the same after any number of them."""

    def __init__(self) -> None:
        self._bins: dict[int, int] = {}
        self.count = 0

    def add(self, seconds: float, tokens: int) -> None:
        """A pass took so long and brought so many tokens, which share the time."""
        each = max(seconds / tokens, SHORTEST)
        place = int(math.log(each / SHORTEST) / _LOG)
        self._bins[place] = self._bins.get(place, 0) + tokens
        self.count += tokens

    def quantile(self, share: float) -> float | None:
        """Seconds that this share of the tokens did not exceed; None where there are none."""
        left = share * self.count
        for place in sorted(self._bins):
            left -= self._bins[place]
            if left <= 0:
                return float(SHORTEST * FINENESS ** (place + 0.5))
        return None
