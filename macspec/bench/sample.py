"""One measured reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..control.cost import BRANCHED
from ..events import ReplyStats, Round
from ..power import Energy
from ..sampling import Sampling
from ..stats import ReplyCounter

Kind = tuple[str | None, int]
"""Of a round: who drafted, with ``BRANCHED`` behind it where one token had a sibling, and how many
tokens the chain had that was verified."""


@dataclass(slots=True)
class Rounds:
    """Rounds of one kind, all together. The first of a reply, which reads the prompt, is none."""

    count: int = 0
    tokens: int = 0
    seconds: float = 0.0


def rows_of(kind: Kind) -> int:
    """Of the pass that verifies such a round."""
    drafter, drafted = kind
    return drafted + 1 + (drafter or "").endswith(BRANCHED)


@dataclass(slots=True)
class ReplyRecorder:
    """Counts a reply pass by pass, the same way for every arm. Times are seconds of one clock."""

    last: float = 0.0
    """When the reply was asked for, then when the newest pass was done."""
    counter: ReplyCounter = field(default_factory=ReplyCounter)
    rounds: dict[Kind, Rounds] = field(default_factory=dict)

    def count(
        self,
        now: float,
        tokens: int,
        drafter: str | None = None,
        drafted: int = 0,
        accepted: int = 0,
        idle: float = 0.0,
    ) -> None:
        """A pass was done ``now``: its tokens were known."""
        seconds, self.last = now - self.last, now
        self.counter.add(tokens, seconds, drafted=drafted, accepted=accepted, idle=idle)
        if self.counter.passes > 1:
            kind = self.rounds.setdefault((drafter if drafted else None, drafted), Rounds())
            kind.count += 1
            kind.tokens += tokens
            kind.seconds += seconds

    def round(self, now: float, it: Round) -> None:
        """A round of a session was done ``now``."""
        drafter = f"{it.drafter}{BRANCHED}" if it.branched else it.drafter
        self.count(now, len(it.tokens), drafter, it.drafted, it.accepted, it.idle_seconds)

    def written(
        self,
        ids: Sequence[int] = (),
        text: str = "",
        reason: str = "length",
        *,
        knows_idle: bool = False,
        counts_passes: bool = True,
    ) -> Written:
        """The reply; ``knows_idle``: whether the arm reports how long the device waited."""
        counter = self.counter
        return Written(
            ids=tuple(ids),
            text=text,
            reason=reason,
            stats=counter.stats(),
            drafted_at=tuple(counter.drafted_at),
            accepted_at=tuple(counter.accepted_at),
            rounds=dict(self.rounds),
            idle_seconds=counter.idle if knows_idle else None,
            counts_passes=counts_passes,
        )


@dataclass(frozen=True, slots=True)
class Written:
    """What an arm wrote, and what it took."""

    ids: tuple[int, ...]
    """Empty where the arm does not report them."""
    text: str
    reason: str
    """end, length, context or interrupted."""
    stats: ReplyStats
    drafted_at: tuple[int, ...] = ()
    """Drafted tokens that were verified, by position in the chain."""
    accepted_at: tuple[int, ...] = ()
    rounds: Mapping[Kind, Rounds] = field(default_factory=dict)
    idle_seconds: float | None = None
    """Of decode, how long the device waited for the host; None if unknown."""
    counts_passes: bool = True
    """Whether passes, drafted and accepted tokens are known."""

    @property
    def decode_tokens(self) -> int:
        """Those after the first pass's."""
        return round((self.stats.decode_tokens_per_s or 0.0) * self.stats.seconds.decode)


def pooled_speed(replies: Sequence[Written]) -> float:
    """Decode tokens a second of all replies together; 0 where there are none."""
    seconds = sum(it.stats.seconds.decode for it in replies)
    return sum(it.decode_tokens for it in replies) / seconds if seconds else 0.0


def tokens_per_pass(replies: Sequence[Written]) -> float | None:
    """Of all replies together; None where passes are not known."""
    passes = sum(it.stats.passes for it in replies)
    known = passes and all(it.counts_passes for it in replies)
    return sum(it.stats.tokens for it in replies) / passes if known else None


@dataclass(frozen=True, slots=True)
class Sample:
    """A reply, and where in the measurement it belongs."""

    arm: str
    question: str
    """Id of the task, and of the turn where there are several."""
    workload: str
    forced: bool
    temperature: float
    repeat: int
    seed: int
    at: float
    """Seconds since the measurement began."""
    written: Written
    slept: bool = False
    """Whether the machine slept meanwhile: then no time holds."""
    energy: Energy | None = None
    """Of the decode."""

    @property
    def speed(self) -> float | None:
        """Tokens a second of the decode, without those of the first pass."""
        return None if self.slept else self.written.stats.decode_tokens_per_s

    @property
    def whole_speed(self) -> float | None:
        """Tokens a second of the reply, from asking for it to its last token."""
        stats = self.written.stats
        known = stats.ttft_s is not None and not self.slept
        return stats.tokens / stats.seconds.wall if known else None

    @property
    def sampling(self) -> Sampling:
        """How it was drawn."""
        seed = self.seed if self.temperature > 0 else None
        return Sampling(temperature=self.temperature, seed=seed)

    @property
    def cell(self) -> tuple[str, float, int]:
        """What it shares with the other arms' samples that it is compared with."""
        return self.question, self.temperature, self.repeat

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON, without any text."""
        written, stats = self.written, self.written.stats
        passes = named(stats, "passes", "drafted", "accepted")
        where = ("arm", "question", "workload", "forced", "temperature", "repeat", "seed")
        return {
            **named(self, *where),
            "at": round(self.at, 3),
            "slept": self.slept,
            "reason": written.reason,
            **named(stats, "prompt_tokens", "tokens"),
            **(passes if written.counts_passes else dict.fromkeys(passes)),
            "drafted_at": list(written.drafted_at),
            "accepted_at": list(written.accepted_at),
            "rounds": [
                [drafter, drafted, it.count, it.tokens, it.seconds]
                for (drafter, drafted), it in written.rounds.items()
            ],
            **named(stats, "ttft_s", "prefill_tokens_per_s"),
            "decode_s": stats.seconds.decode,
            **named(stats, "decode_tokens_per_s", "itl_ms_median", "itl_ms_p95"),
            "idle_s": written.idle_seconds,
            "energy": None if self.energy is None else self.energy.as_dict(),
        }


def named(it: object, *names: str) -> dict[str, Any]:
    """Some attributes, by name."""
    return {name: getattr(it, name) for name in names}
