"""From events to numbers: one reducer for the engine, the app, the bench and the power meter."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from .events import Finished, Prefilled, ReplyStats, Round, Seconds

RECENT = 24
"""Rounds over which recent acceptance is taken."""

FINENESS = 1.02
"""Ratio of the borders of a bin: a live latency is known to one percent."""

SHORTEST = 1e-5
"""Seconds; shorter latencies count as this."""

_LOG = math.log(FINENESS)


class Latencies:
    """Inter-token latencies in bins: a quantile takes the same time after any number of them."""

    def __init__(self) -> None:
        self._bins: dict[int, int] = {}
        self.count = 0

    def add(self, seconds: float, tokens: int) -> None:
        """Add the latency that so many tokens share."""
        place = int(math.log(max(seconds, SHORTEST) / SHORTEST) / _LOG)
        self._bins[place] = self._bins.get(place, 0) + tokens
        self.count += tokens

    def quantile(self, share: float) -> float | None:
        """Seconds that this share of the tokens did not exceed; None without tokens."""
        left = share * self.count
        for place in sorted(self._bins):
            left -= self._bins[place]
            if left <= 0:
                return float(SHORTEST * FINENESS ** (place + 0.5))
        return None


@dataclass(slots=True)
class ReplyCounter:
    """Adds up one reply, event by event, each in constant time."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    dropped_messages: int = 0
    tokens: int = 0
    passes: int = 0
    first_tokens: int = 0
    """Tokens of the first pass, which also reads the end of the prompt."""
    prefill: float | None = None
    """Seconds up to these, ``decode`` after them."""
    decode: float = 0.0
    idle: float = 0.0
    """Of decode, how long the device waited for the host."""
    drafted: int = 0
    accepted: int = 0
    drafted_at: list[int] = field(default_factory=list)
    """Tokens verified at each position of the chain."""
    accepted_at: list[int] = field(default_factory=list)
    expected: float = 0.0
    cost: float = 0.0
    plain_seconds: float | None = None
    slept: bool = False
    """Whether the machine slept, or its clock was set: all times are invalid then."""
    newest: Round | None = None
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=RECENT))
    """Drafted and accepted tokens of the newest rounds."""
    latencies: Latencies = field(default_factory=Latencies)
    token_seconds: list[tuple[float, int]] = field(default_factory=list)
    """Of each round of the decode, the latency of its tokens, and their number."""
    final: ReplyStats | None = None
    """What the engine reported at the end."""

    def see(self, event: object) -> None:
        """Take the next event of a reply; others are ignored."""
        match event:
            case Prefilled():
                self.prompt_tokens = event.prompt_tokens
                self.cached_tokens = event.cached_tokens
                self.dropped_messages = event.dropped_messages
                self.prefill = event.seconds
            case Round():
                self.newest = event
                self.expected += event.expected
                self.cost += event.cost
                self.add(
                    len(event.tokens),
                    event.seconds,
                    drafted=event.drafted,
                    accepted=event.accepted,
                    idle=event.idle_seconds,
                )
            case Finished():
                self.final = event.stats

    def add(
        self, tokens: int, seconds: float, *, drafted: int = 0, accepted: int = 0, idle: float = 0.0
    ) -> None:
        """Count a pass, where there is no ``Round`` to see.

        Args:
            seconds: since the pass before; of the first pass, since the reply was asked for.
        """
        self.passes += 1
        self.tokens += tokens
        self.drafted += drafted
        self.accepted += accepted
        self.recent.append((drafted, accepted))
        if self.passes == 1:
            self.first_tokens = tokens
            self.prefill = seconds
        else:
            self.decode += seconds
            self.idle += idle
            latency, tokens = seconds / max(tokens, 1), max(tokens, 1)
            self.latencies.add(latency, tokens)
            self.token_seconds.append((latency, tokens))
        grow = drafted - len(self.drafted_at)
        self.drafted_at += [0] * grow
        self.accepted_at += [0] * grow
        for position in range(drafted):
            self.drafted_at[position] += 1
            self.accepted_at[position] += position < accepted

    @property
    def recent_acceptance(self) -> float | None:
        return _ratio(sum(a for _, a in self.recent), sum(d for d, _ in self.recent))

    def stats(self, *, live: bool = False) -> ReplyStats:
        """The numbers so far; the engine's own once it has reported them.

        Args:
            live: in constant time, with latencies known to one percent.
        """
        if self.final is not None:
            return self.final
        median = p95 = None
        if not self.slept and live:
            median, p95 = self.latencies.quantile(0.5), self.latencies.quantile(0.95)
        elif not self.slept and self.token_seconds:
            itl = sorted(each for each, tokens in self.token_seconds for _ in range(tokens))
            median, p95 = statistics.median(itl), _percentile(itl, 0.95)
        prefill = self.prefill or 0.0
        measured = None if self.slept else self.prefill
        speed = None if self.slept else _ratio(self.tokens - self.first_tokens, self.decode)
        plain = self.plain_seconds
        return ReplyStats(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            tokens=self.tokens,
            passes=self.passes,
            drafted=self.drafted,
            accepted=self.accepted,
            acceptance=_ratio(self.accepted, self.drafted),
            acceptance_by_position=tuple(
                a / d for a, d in zip(self.accepted_at, self.drafted_at, strict=True)
            ),
            tokens_per_pass=_ratio(self.tokens, self.passes),
            ttft_s=measured,
            itl_ms_median=None if median is None else 1e3 * median,
            itl_ms_p95=None if p95 is None else 1e3 * p95,
            decode_tokens_per_s=speed,
            prefill_tokens_per_s=_ratio(self.prompt_tokens - self.cached_tokens, measured or 0),
            predicted_speedup=_ratio(self.expected, self.cost),
            measured_speedup=None if speed is None or plain is None else speed * plain,
            seconds=Seconds(prefill + self.decode, prefill, self.decode, self.idle),
            dropped_messages=self.dropped_messages,
        )


@dataclass(slots=True)
class SessionStats:
    """Totals over the replies of a session."""

    replies: int = 0
    tokens: int = 0
    passes: int = 0
    drafted: int = 0
    accepted: int = 0

    def add(self, reply: ReplyStats) -> None:
        self.replies += 1
        self.tokens += reply.tokens
        self.passes += reply.passes
        self.drafted += reply.drafted
        self.accepted += reply.accepted

    @property
    def acceptance(self) -> float | None:
        return _ratio(self.accepted, self.drafted)

    @property
    def tokens_per_pass(self) -> float | None:
        return _ratio(self.tokens, self.passes)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between the two closest ranks."""
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
