"""Whether replies that should be equal are: token by token with the baseline's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from ..divergence import Divergence, choice_scores, explain, first_difference
from ..models import Pair
from ..models.cached import CachedModel
from ..sampling import Sampling
from .questions import Question
from .sample import Sample, named

Explain = Callable[[Sample, tuple[int, ...], int], Divergence]
"""From a sample, the baseline's ids and where they part to the fork."""


@dataclass(frozen=True, slots=True)
class Equality:
    """How many replies of an arm are the baseline's."""

    compared: int = 0
    equal: int = 0
    near_ties: int = 0
    """Of those that part, the ones that rounding explains."""

    @property
    def differ(self) -> int:
        """Replies that part from the baseline's where rounding does not explain it."""
        return self.compared - self.equal - self.near_ties

    @classmethod
    def of(cls, forks: Sequence[Divergence | None]) -> Equality:
        """Of replies beside the baseline's; None: they are equal."""
        near_ties = sum(fork is not None and fork.near_tie for fork in forks)
        return cls(len(forks), forks.count(None), near_ties)

    def as_dict(self) -> dict[str, int]:
        """Ready for JSON."""
        return {**asdict(self), "differ": self.differ}


@dataclass(frozen=True, slots=True)
class Compared:
    """A reply beside the baseline's."""

    sample: Sample
    fork: Divergence | None
    """None: they are equal."""

    def as_dict(self) -> dict[str, Any]:
        """Where they diverge, ready for JSON."""
        assert self.fork is not None
        return {
            **named(self.sample, "arm", "question", "temperature", "repeat"),
            **named(self.fork, "position", "near_tie"),
            "gap": self.fork.margin,
        }


def compare(
    samples: Sequence[Sample], baseline: str, equals: Mapping[str, bool], explained: Explain
) -> Iterator[Compared]:
    """Every reply that should be the baseline's, beside it.

    Forced replies are equal by themselves, and interrupted ones end anywhere.

    Args:
        equals: the arms whose greedy replies should be the baseline's, and whether those above
            temperature 0 should be too: their text depends on seed and prompt alone.
        explained: judges where two replies part.
    """
    plain = {it.cell: it.written for it in samples if it.arm == baseline}
    for sample in samples:
        written, base = sample.written, plain.get(sample.cell)
        if sample.arm == baseline or sample.forced or sample.arm not in equals:
            continue
        if base is None or not base.ids or not written.ids:
            continue
        if "interrupted" in (written.reason, base.reason):
            continue
        if sample.temperature > 0 and not (equals[sample.arm] and equals.get(baseline)):
            continue
        position = first_difference(base.ids, written.ids)
        fork = None if position is None else explained(sample, base.ids, position)
        yield Compared(sample, fork)


def judge(pair: Pair, questions: Sequence[Question], kv_bits: int | None = None) -> Explain:
    """Explains divergences with the own scores of the pair's target, each place once."""
    prompts = {question.id: question.ids for question in questions}

    @cache
    def scores(read: tuple[int, ...], drawn: Sampling) -> tuple[list[float], float]:
        target = CachedModel(pair.target.module, pair.vocabulary, kv_bits=kv_bits)
        return choice_scores(target, list(read), drawn)

    def explained(sample: Sample, plain: tuple[int, ...], position: int) -> Divergence:
        ids = sample.written.ids
        if position >= min(len(plain), len(ids)):
            return explain(position, plain, ids, [], 0.0)
        read = prompts[sample.question] + plain[:position]
        return explain(position, plain, ids, *scores(read, sample.sampling))

    return explained
