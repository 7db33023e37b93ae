"""Whether a model's rows see only the rows before them, found out by trying.

A pass verifies drafted tokens in its later rows. If one of these changed an earlier row's logits, a
rejected token would have had its say in the text.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from ..cache import ModelCache
from .rollback import distance

SEES_AHEAD = (
    "this model runs plain, without speculation: in mlx-lm a token of a pass sees the tokens after "
    "it, so drafted ones would change the text"
)

TRIED = "_tried_rows"
"""The attribute of a model that holds the outcome."""

_ROWS = ((13, 41, 7, 37, 23, 5), (13, 41, 29, 3, 17, 19))
_SAME = 2
"""What a model is tried with: two passes that begin with the same rows."""


def why_not_causal(module: Any, vocabulary: int) -> str | None:
    """Why drafted tokens would change the text, in a sentence for the user; None: they do not."""
    known: dict[str, Any] = vars(module)
    if TRIED not in known:
        known[TRIED] = _sees_ahead(module, vocabulary)
    return SEES_AHEAD if known[TRIED] else None


def _sees_ahead(module: Any, vocabulary: int) -> bool:
    one, other = (_pass(module, [id % vocabulary for id in rows]) for rows in _ROWS)
    # Rounding apart, which may depend on the other rows where they share experts.
    return distance(one[:_SAME], other[:_SAME]) * 30 > distance(one[_SAME:], other[_SAME:])


def _pass(module: Any, rows: list[int]) -> mx.array:
    logits: mx.array = module(mx.array([rows], mx.uint32), cache=ModelCache(module).layers)[0]
    return mx.where(mx.isinf(logits), 0, logits)
