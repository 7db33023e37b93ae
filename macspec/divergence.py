"""Where two replies that should be equal diverge, and whether rounding explains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from .text import common_prefix

if TYPE_CHECKING:
    from .models.cached import CachedModel
    from .sampling import Sampling

ROUNDING = {"float32": 1e-4, "float16": 0.1, "bfloat16": 0.25}
"""By precision, how far apart two logits may be and still swap places when a pass has more rows. In
16 bits that is two steps of a logit around 16 to 32, or less."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two replies that should be equal diverge, and how close the choice was."""

    position: int
    """Index in the reply of the first token that differs."""
    plain: int | None
    """The token without speculation; None: that reply was over."""
    speculative: int | None
    margin: float | None
    """Best score minus the lower score of the two tokens; None if a reply only ended early."""
    tolerance: float

    @property
    def near_tie(self) -> bool:
        """Whether rounding explains it."""
        return self.margin is not None and self.margin <= self.tolerance


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Index of the first token that differs, a missing one included; None if all are equal."""
    same = common_prefix(one, other)
    return None if same == len(one) == len(other) else same


def explain(
    position: int,
    plain: Sequence[int],
    speculative: Sequence[int],
    scores: Sequence[float],
    tolerance: float,
) -> Divergence:
    """The divergence at ``position``, given the scores [V] that the token there is chosen by."""
    one = plain[position] if position < len(plain) else None
    other = speculative[position] if position < len(speculative) else None
    margin = None
    if one is not None and other is not None:
        margin = score_margin(scores, (one, other))
    return Divergence(position, one, other, margin, tolerance)


def score_margin(scores: Sequence[float], tokens: Sequence[int]) -> float:
    return max(scores) - min(scores[token] for token in tokens)


def choice_scores(
    target: CachedModel, tokens: list[int], sampling: Sampling
) -> tuple[list[float], float]:
    """The float32 scores [V] that the token after ``tokens`` is chosen by, in a pass of one row;
    and their rounding tolerance: how far apart two of them may be and still swap places."""
    import mlx.core as mx  # the app compares texts without it

    from .noise import TARGET, Noise

    logits = target.logits(target.unread(tokens), rows=1)
    row = sampling.scores(logits.astype(mx.float32), sampling.recent(tokens, None, 1))
    if not sampling.greedy and sampling.seed is not None:
        row = row + Noise(sampling.seed, 0, len(tokens), 1, row.shape[-1]).gumbel(TARGET)
    precision = str(logits.dtype).rsplit(".", 1)[-1]
    tolerance = ROUNDING.get(precision, ROUNDING["bfloat16"]) / (sampling.temperature or 1)
    return cast("list[float]", row[0].tolist()), tolerance
