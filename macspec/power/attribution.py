"""Which power belongs to which kind of round."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

RATE = 0.3
"""Share of a reply's difference that is learned from it: readings are of the whole machine."""


@dataclass
class RoundWatts:
    """Mean power of the machine while rounds of one drafter and depth run.

    A source is read once a second and a round takes milliseconds, so no round is measured alone.
    Each reply gives one equation: its joules are the sum of the seconds of each kind times the
    watts of that kind. The watts are changed by the least that meets it in part (normalised least
    mean squares; Widrow and Hoff 1960), which finds them where the mix of kinds varies.

    Limits: kinds that always run in the same proportion share their difference; other programs
    count as if they were decoding; replies of less than 5 s, in which some rails cannot be
    measured, teach nothing.
    """

    _watts: dict[tuple[str | None, int], float] = field(default_factory=dict, init=False)

    def __bool__(self) -> bool:
        return bool(self._watts)

    def of(self, drafter: str | None, depth: int) -> float:
        """Watts of such rounds; where none has run, of the nearest depth of the drafter, else the
        mean of all, with which time alone decides; ValueError if nothing was measured."""
        depths = [at for name, at in self._watts if name == drafter]
        if not depths:
            return statistics.mean(self._watts.values())
        return self._watts[drafter, min(depths, key=lambda at: abs(at - depth))]

    def observe(self, joules: float, rounds: Iterable[tuple[str | None, int, float]]) -> None:
        """Learn from a reply.

        Args:
            joules: of its decode.
            rounds: drafter, depth, and the seconds that such rounds took together.
        """
        seconds = {(drafter, depth): it for drafter, depth, it in rounds if it > 0}
        total = sum(seconds.values())
        if not joules > 0 or not total:
            return
        mean = joules / total
        now = {kind: self.of(*kind) if self._watts else mean for kind in seconds}
        shares = {kind: it / total for kind, it in seconds.items()}
        missed = mean - sum(share * now[kind] for kind, share in shares.items())
        step = RATE * missed / sum(share * share for share in shares.values())
        for kind, share in shares.items():
            self._watts[kind] = max(now[kind] + step * share, mean / 10)
