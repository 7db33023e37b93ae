"""Recorded answers: decoding along a text that no model at hand could write.

The target reads what it would have written, at the real cost. What is measured holds for look-ups,
for the controller and for the growth of the context; it says nothing about a draft model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from ..errors import BadOptionError
from ..models import Pair
from ..models.template import Template
from .task import Task

SURE = 1e9
"""Added to the score of the recorded token: no other one is drawn."""


def prompt_ids(task: Task, template: Template) -> list[int]:
    """The ids that every way to write a reply gets."""
    if task.raw:
        return template.raw(task.messages[-1]["content"])
    return template.tokens(task.messages)


def answer_ids(task: Task, pair: Pair) -> list[int] | None:
    """The ids of a task's recorded answer, cut to its longest reply; None where it has none.

    Raises:
        BadOptionError: nothing of it can be emitted.
    """
    if task.forced is None:
        return None
    tokenizer: Any = pair.target.tokenizer
    ids = tokenizer.encode(task.forced, add_special_tokens=False)
    # A token that ends the turn would end the measurement too.
    ids = [int(token) for token in ids if token not in pair.stop_ids and token < pair.vocabulary]
    if not ids:
        raise BadOptionError(f"the recorded answer of {task.id} has no tokens for this target")
    return ids[: task.max_tokens]


class ForcedTarget:
    """A target that chooses a recorded answer, for mlx-lm's own loops.

    It is called like the model, and its logits have the answer's token so far above all others
    that it is drawn at any temperature. What it costs beside the pass is one addition over the
    logits.

    Args:
        module: the target, an mlx-lm model.
        prompt: tokens of the prompt.
        answer: the ids to be drawn after it; past their end the model is as it is.
    """

    def __init__(self, module: Any, prompt: int, answer: Sequence[int]) -> None:
        self._module = module
        # The row of the prompt's last token is the first to be judged.
        self._first = prompt - 1
        self._answer = mx.array([*answer], mx.uint32)
        self._read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def __call__(self, tokens: mx.array, cache: Any = None, **options: Any) -> mx.array:
        """Logits [1, rows, V] of tokens [1, rows], which follow what the cache holds."""
        before = self._before(cache)
        self._read = before + tokens.shape[1]
        logits: mx.array = self._module(tokens, cache=cache, **options)
        start = before - self._first
        skipped = max(-start, 0)
        chosen = self._answer[max(start, 0) : max(start + tokens.shape[1], 0)]
        if chosen.shape[0] == 0:
            return logits
        sure = mx.arange(logits.shape[-1]) == chosen[:, None]
        end = skipped + chosen.shape[0]
        rows = logits[:, skipped:end] + mx.where(sure, SURE, 0).astype(logits.dtype)
        return mx.concatenate([logits[:, :skipped], rows, logits[:, end:]], axis=1)

    def _before(self, cache: Any) -> int:
        """Tokens that the cache holds; of one that does not tell, all that were read so far."""
        told = (getattr(layer, "offset", None) for layer in cache)
        return next((offset for offset in told if isinstance(offset, int)), self._read)
