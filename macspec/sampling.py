"""From logits to the distribution that is sampled from: one pipeline for target and draft.

The order is mlx-lm's: bias, penalties, log-softmax, top-p, min-p, top-k, temperature, softmax.
Truncation therefore sees untempered probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from .errors import BadOptionError
from .noise import MAX_SEED


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. The defaults change nothing but the temperature.

    Raises:
        BadOptionError: a value is outside its range.
    """

    temperature: float = 0.7
    """0 takes the most likely token."""
    top_k: int = 0
    """Keep the k most likely tokens; 0 is off. Of equals the lowest id wins."""
    top_p: float = 1.0
    """Keep v if the mass ranked above it is below this share; equals stay together."""
    min_p: float = 0.0
    """Keep v if its probability is at least this share of the largest."""
    repetition_penalty: float = 1.0
    """Divide positive and multiply negative logits of recent tokens (arXiv:1909.05858)."""
    presence_penalty: float = 0.0
    """Subtract from the logit of every recent token."""
    frequency_penalty: float = 0.0
    """Subtract from the logit for each time the token occurs among the recent ones."""
    penalty_context: int = 20
    """How many tokens count as recent, the prompt's included."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Pairs of token id and a value added to its logit."""
    seed: int | None = None
    """None draws a seed for each reply."""

    def __post_init__(self) -> None:
        def check(
            name: str, value: Any, low: float, high: float, allowed: str, whole: bool = False
        ) -> None:
            number = isinstance(value, int if whole else int | float)
            if not number or isinstance(value, bool) or not low <= value <= high:
                raise BadOptionError(f"{name} is {value}; it must be {allowed}")

        big, any_size, anything = 1e9, "between -1e9 and 1e9", math.inf
        if self.temperature != 0:
            # Colder than this, float32 cannot tell it from 0.
            check("temperature", self.temperature, 1e-6, 100, "0, or between 1e-6 and 100")
        check("top-k", self.top_k, 0, anything, "0 (off) or a positive count", whole=True)
        check("top-p", self.top_p, math.ulp(0), 1, "above 0 and at most 1")
        check("min-p", self.min_p, 0, 1, "between 0 and 1")
        r = self.repetition_penalty
        check("repetition-penalty", r, 0.01, 100, "between 0.01 and 100 (1 is off)")
        check("presence-penalty", self.presence_penalty, -big, big, any_size)
        check("frequency-penalty", self.frequency_penalty, -big, big, any_size)
        n = self.penalty_context
        check("penalty-context", n, 1, anything, "a count of at least 1", whole=True)
        for token, value in self.logit_bias:
            check("logit-bias token", token, 0, anything, "an id of 0 or more", whole=True)
            check(f"logit-bias for token {token}", value, -big, big, any_size)
        if self.seed is not None:
            check("seed", self.seed, 0, MAX_SEED, "between 0 and 2^64 - 1", whole=True)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def penalised(self) -> bool:
        """Whether the distribution depends on the recent tokens beyond the model's own logits."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )

    def scores(self, logits: mx.array, recent: mx.array | None = None) -> mx.array:
        """What a draw is made from.

        Args:
            logits: [rows, V], any float type.
            recent: [rows, n] ids before each row, -1 where there is none; needed if ``penalised``.

        Returns:
            [rows, V] float32. Greedy: the logits after bias and penalties. Otherwise normalised
            log-probabilities, -inf where cut off.
        """
        weights = self.weights(logits, recent)
        return weights if self.greedy else weights - mx.logsumexp(weights, axis=-1, keepdims=True)

    def weights(
        self, logits: mx.array, recent: mx.array | None = None, ranked: int | None = None
    ) -> mx.array:
        """``scores`` up to a constant in each row, which no draw depends on: cheaper to compute.

        Args:
            ranked: rank only so many tokens for top-p, which then keeps no more than those.
        """
        logits = self._adjusted(logits.astype(mx.float32), recent)
        if self.greedy:
            return logits
        # The highest becomes 0: a small temperature would leave no digits of larger ones.
        log_p = logits - mx.max(logits, axis=-1, keepdims=True)
        top_k = self.top_k if 0 < self.top_k < log_p.shape[-1] else None
        if self.top_p < 1:
            few = [it for it in (top_k, ranked) if it is not None and it < log_p.shape[-1]]
            log_p = keep_top_p(log_p, self.top_p, min(few, default=None))
        if self.min_p > 0:
            log_p = keep_min_p(log_p, self.min_p)
        if top_k is not None:
            log_p = keep_top_k(log_p, top_k)
        return log_p * (1 / self.temperature)

    def _adjusted(self, logits: mx.array, recent: mx.array | None) -> mx.array:
        bias = [(token, value) for token, value in self.logit_bias if token < logits.shape[-1]]
        if bias:
            ids, values = zip(*bias, strict=True)
            logits = logits.at[:, mx.array(ids)].add(mx.array(values, mx.float32))
        if not self.penalised or recent is None or recent.shape[-1] == 0:
            return logits
        rows, width = logits.shape
        # One spare column takes the -1 padding.
        slots = mx.where(recent < 0, width, recent)
        row_ids = mx.arange(rows)[:, None]
        counts = mx.zeros((rows, width + 1)).at[row_ids, slots].add(1)[:, :width]
        seen = counts > 0
        if self.repetition_penalty != 1:
            r = self.repetition_penalty
            logits = mx.where(seen, mx.where(logits < 0, logits * r, logits / r), logits)
        if self.presence_penalty != 0:
            logits = mx.where(seen, logits - self.presence_penalty, logits)
        if self.frequency_penalty != 0:
            logits = logits - self.frequency_penalty * counts
        return logits

    def recent(
        self, tokens: Sequence[int], following: mx.array | None, rows: int
    ) -> mx.array | None:
        """The ids that count as recent at each row.

        Args:
            following: [m] ids after the committed tokens, m >= rows - 1; may be lazy.
            rows: the last row comes after all of these ids, each earlier one after one id less.

        Returns:
            [rows, n] int32 with n <= ``penalty_context``, -1 where there is none; None if nothing
            is penalised.
        """
        if not self.penalised:
            return None
        known = len(tokens) + (0 if following is None else following.shape[0])
        n = max(min(self.penalty_context, known), 1)
        tail = list(tokens[-n:])
        history = mx.array([-1] * (n - len(tail)) + tail, mx.int32)
        if following is not None:
            history = mx.concatenate([history, following.astype(mx.int32)])
        first = history.shape[0] - n - (rows - 1)
        return history[first + mx.arange(rows)[:, None] + mx.arange(n)[None]]


def keep_top_p(log_p: mx.array, top_p: float, most: int | None = None) -> mx.array:
    """Nucleus truncation of [rows, V]: v stays if the mass ranked above it is < top_p of all.

    Args:
        log_p: up to a constant in each row.
        most: only so many tokens will be kept later, so that no others need be ranked.
    """
    # In float32 a smaller share would be 0, and not even the most likely token below it.
    top_p = max(top_p, 1e-30)
    p = mx.softmax(log_p, axis=-1)
    # No token less likely than this is kept. Made equal, those take half the time to sort. Where
    # sums in float32 are too coarse for it, all are added up, as mlx-lm does.
    least = (1 - top_p) / (2 * p.shape[-1])
    coarse = most is None and least < 2**-18
    if most is not None:
        ranked = mx.topk(p, most, axis=-1)
    else:
        ranked = p if coarse else mx.maximum(p, least)
    ranked = mx.sort(ranked, axis=-1)
    above = mx.cumsum(ranked, axis=-1, reverse=True, inclusive=False)
    total = above[..., :1] + ranked[..., :1] if coarse else 1.0
    cut = mx.sum(above >= top_p * total, axis=-1, keepdims=True)
    threshold = mx.take_along_axis(ranked, cut, axis=-1)
    return mx.where(p < threshold, -mx.inf, log_p)


def keep_min_p(log_p: mx.array, min_p: float) -> mx.array:
    """Truncation of [rows, V] relative to the most likely token."""
    threshold = mx.max(log_p, axis=-1, keepdims=True) + math.log(min_p)
    return mx.where(log_p < threshold, -mx.inf, log_p)


def keep_top_k(log_p: mx.array, top_k: int) -> mx.array:
    """The k most likely of [rows, V]; among equals at the threshold the lowest ids."""
    threshold = mx.min(mx.topk(log_p, top_k, axis=-1), axis=-1, keepdims=True)
    above = log_p > threshold
    tied = log_p == threshold
    room = top_k - mx.sum(above, axis=-1, keepdims=True)
    chosen = above | (tied & (mx.cumsum(tied.astype(mx.int32), axis=-1) <= room))
    return mx.where(chosen, log_p, -mx.inf)
