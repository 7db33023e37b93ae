"""Counters of a reply and of a session, and the numbers that people see."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Seconds:
    """Where the time went. With one synchronisation a round the device's share is not split into
    draft and verify; the bench's profile adds synchronisations to measure that."""

    wall: float
    """From the call of ``reply`` to the last token."""
    prefill: float
    """Of that, up to the first token."""
    decode: float
    """The rest."""
    device_idle: float
    """Of decode: the device had nothing to do because the host was between two rounds."""


@dataclass(frozen=True, slots=True)
class ReplyStats:
    """The numbers of one reply; None where something was not measured because it did not happen."""

    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens found in the target's cache."""
    tokens: int
    """Tokens emitted, the end-of-turn token included."""
    passes: int
    """Verify passes; the prompt's last pass is the first."""
    drafted: int
    """Drafted tokens that were verified."""
    accepted: int
    acceptance: float | None
    """accepted / drafted."""
    acceptance_by_position: tuple[float, ...]
    """For each position in the chain: accepted / drafted there."""
    tokens_per_pass: float | None
    ttft_s: float | None
    """Time to first token."""
    itl_ms_median: float | None
    """Inter-token latency: a round's wall time shared by its tokens, decode only."""
    itl_ms_p95: float | None
    decode_tokens_per_s: float | None
    """Tokens after the first pass's, over decode seconds."""
    prefill_tokens_per_s: float | None
    """Prompt tokens that were not cached, over TTFT."""
    predicted_speedup: float | None
    """Over plain, as the controller expected it: expected tokens / expected plain steps."""
    measured_speedup: float | None
    """Over plain as the cost curve knows it: decode speed times the seconds of a plain round."""
    seconds: Seconds
    dropped_messages: int = 0
    """Oldest messages that were left out of the prompt for want of room."""

    def as_dict(self) -> dict[str, Any]:
        """The same, ready for JSON."""
        return asdict(self)


@dataclass(slots=True)
class Counters:
    """Counts one reply; ``start`` and the times given to it are seconds of one clock."""

    start: float
    prompt_tokens: int = 0
    cached_tokens: int = 0
    dropped_messages: int = 0
    tokens: int = 0
    passes: int = 0
    first_tokens: int = 0
    first: float | None = None
    last: float | None = None
    idle: float = 0.0
    drafted_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    token_seconds: list[float] = field(default_factory=list)
    expected: float = 0.0
    cost: float = 0.0
    plain_seconds: float | None = None
    """What a plain round takes, if that is known."""
    slept: bool = False
    """Whether the machine slept, or its clock was set, meanwhile: then no time holds."""

    def expect(self, tokens: float, cost: float) -> None:
        """Count what a round was expected to bring, and the plain steps that it should take."""
        self.expected += tokens
        self.cost += cost

    def count(self, now: float, tokens: int, drafted: int, accepted: int, idle: float) -> float:
        """Count a pass that ended ``now`` and return its seconds."""
        seconds = now - (self.start if self.last is None else self.last)
        self.passes += 1
        self.tokens += tokens
        if self.first is None:
            self.first = now
            self.first_tokens = tokens
        else:
            self.idle += idle
            self.token_seconds += [seconds / tokens] * tokens
        self.last = now
        grow = drafted - len(self.drafted_at)
        self.drafted_at += [0] * grow
        self.accepted_at += [0] * grow
        for position in range(drafted):
            self.drafted_at[position] += 1
            self.accepted_at[position] += position < accepted
        return seconds

    def stats(self) -> ReplyStats:
        """The numbers so far."""
        drafted, accepted = sum(self.drafted_at), sum(self.accepted_at)
        first = self.start if self.first is None else self.first
        last = self.start if self.last is None else self.last
        seconds = Seconds(last - self.start, first - self.start, last - first, self.idle)
        itl = [] if self.slept else sorted(self.token_seconds)
        speed = None
        if not self.slept:
            speed = _ratio(self.tokens - self.first_tokens, seconds.decode)
        plain = self.plain_seconds
        return ReplyStats(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            tokens=self.tokens,
            passes=self.passes,
            drafted=drafted,
            accepted=accepted,
            acceptance=_ratio(accepted, drafted),
            acceptance_by_position=tuple(
                a / d for a, d in zip(self.accepted_at, self.drafted_at, strict=True)
            ),
            tokens_per_pass=_ratio(self.tokens, self.passes),
            ttft_s=None if self.first is None or self.slept else seconds.prefill,
            itl_ms_median=1e3 * statistics.median(itl) if itl else None,
            itl_ms_p95=1e3 * _percentile(itl, 0.95) if itl else None,
            decode_tokens_per_s=speed,
            prefill_tokens_per_s=_ratio(
                self.prompt_tokens - self.cached_tokens,
                0 if self.first is None or self.slept else seconds.prefill,
            ),
            predicted_speedup=_ratio(self.expected, self.cost),
            measured_speedup=None if speed is None or plain is None else speed * plain,
            seconds=seconds,
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
        """Count one more reply."""
        self.replies += 1
        self.tokens += reply.tokens
        self.passes += reply.passes
        self.drafted += reply.drafted
        self.accepted += reply.accepted

    @property
    def acceptance(self) -> float | None:
        """Accepted / drafted, over all replies."""
        return _ratio(self.accepted, self.drafted)

    @property
    def tokens_per_pass(self) -> float | None:
        """Tokens / verify passes, over all replies."""
        return _ratio(self.tokens, self.passes)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between the two closest ranks."""
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
