"""Where the time went: what the costs predict, and what keeps an arm from being faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .costs import Costs
from .sample import Rounds, Sample, rows_of

SLIGHT = 1.03
"""Gains below this are not worth a sentence."""

IDLE_AUTO = 0.1
"""Share of rounds below which an arm hardly drafts."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of an arm, over some replies. Rounds that read a prompt are left out."""

    predicted: float | None
    """Speed-up that the measured costs give: decoded tokens over the plain steps of the rounds."""
    host: float | None
    """Share of decode in which the device waited for the host; None where nobody knows."""
    tokens: float
    """Tokens a round."""
    stood: float
    """Drafted tokens that stand, in a round that drafts."""
    drafted: float
    """Tokens drafted in a round that drafts."""
    drafting: float
    """Share of rounds that draft."""
    verify: float
    """Plain steps of a verify pass, over the rounds that draft."""
    rows: float
    """Rows of such a pass."""
    draft: float
    """Plain steps of drafting in such a round."""

    def sentence(self, measured: float | None) -> str:
        """What limits it, in words.

        Args:
            measured: the speed-up over plain.
        """
        if self.drafting == 0:
            return "it drafted nothing"
        if self.drafting < IDLE_AUTO:
            said = f"it drafted in {self.drafting:.0%} of the rounds: the rest promised no gain"
            return f"{said}; {self._cost()}"
        gains = self._gains()
        what = max(gains, key=gains.__getitem__)
        said, instead = {
            "verify": (self._cost(), "if it cost one"),
            "draft": (
                f"drafting {self.drafted:.1f} tokens costs {self.draft:.2f} plain steps",
                "if it cost nothing",
            ),
            "drafts": (
                f"of {self.drafted:.1f} drafted tokens {self.stood:.1f} stand",
                "if all did",
            ),
            "host": (
                f"the device waits for the host in {self.host or 0:.0%} of the time",
                "without",
            ),
        }[what]
        if gains[what] < SLIGHT or measured is None:
            return said
        return f"{said}; {instead}: about {measured * gains[what]:.2f}x"

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "predicted_speedup": self.predicted,
            "host_share": self.host,
            "tokens_per_round": self.tokens,
            "stood_per_round": self.stood,
            "drafted_per_round": self.drafted,
            "drafting_share": self.drafting,
            "verify_steps": self.verify,
            "verify_rows": self.rows,
            "draft_steps": self.draft,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Limits:
        """What ``as_dict`` gave."""
        return cls(
            predicted=stored["predicted_speedup"],
            host=stored["host_share"],
            tokens=stored["tokens_per_round"],
            stood=stored["stood_per_round"],
            drafted=stored["drafted_per_round"],
            drafting=stored["drafting_share"],
            verify=stored["verify_steps"],
            rows=stored["verify_rows"],
            draft=stored["draft_steps"],
        )

    def _cost(self) -> str:
        return f"verify at {self.rows:.2g} rows costs {self.verify:.2f} plain steps on this backend"

    def _gains(self) -> dict[str, float]:
        """By how much it would be faster if one thing cost nothing."""
        plain = 1 - self.drafting
        cost = plain + self.drafting * (self.verify + self.draft)
        best = plain + self.drafting * (self.drafted + 1)
        gains = {
            "verify": cost / (plain + self.drafting * (1 + self.draft)),
            "draft": cost / (plain + self.drafting * self.verify),
            "drafts": best / self.tokens if self.tokens else 1.0,
        }
        if self.host is not None:
            gains["host"] = 1 / max(1 - self.host, 0.01)
        return gains


def limits_of(samples: Sequence[Sample], costs: Costs) -> Limits | None:
    """The limits of one arm; None where its passes are not known, or nothing was decoded."""
    curve = costs.curve()
    whole, verify, draft, rows, drafted, stood = Rounds(), 0.0, 0.0, 0, 0, 0
    drafting, steps = 0, 0.0
    decode, idle, known = 0.0, 0.0, True
    for sample in samples:
        stats = sample.written.stats
        length = stats.prompt_tokens + stats.tokens // 2
        if not sample.written.counts_passes:
            return None
        decode += stats.seconds.decode
        known = known and sample.written.idle_seconds is not None
        idle += sample.written.idle_seconds or 0.0
        for kind, it in sample.written.rounds.items():
            drafter, depth = kind
            whole.count += it.count
            whole.tokens += it.tokens
            cost, step = curve.verify(rows_of(kind), length), depth * curve.step(drafter or "")
            steps += it.count * (cost + step)
            if depth:
                drafting += it.count
                drafted += it.count * depth
                rows += it.count * rows_of(kind)
                stood += it.tokens - it.count
                verify += it.count * cost
                draft += it.count * step
    if whole.count == 0:
        return None
    many = max(drafting, 1)
    return Limits(
        predicted=whole.tokens / steps if costs.passes and steps else None,
        host=idle / decode if known and decode > 0 else None,
        tokens=whole.tokens / whole.count,
        stood=stood / many,
        drafted=drafted / many,
        drafting=drafting / whole.count,
        verify=verify / many,
        rows=rows / many,
        draft=draft / many,
    )
