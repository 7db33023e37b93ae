"""Which tokens of a reply are reasoning, by the tags that the target was trained to write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ANSWER, REASONING, TAG = "answer", "reasoning", "tag"


class Reasoning:
    """Follows a reply token by token; a tag may be of several, so some wait for the next one.

    Args:
        tokenizer: mlx-lm's ``TokenizerWrapper``, which knows the tags of many models.
        begun: the prompt ends inside of reasoning.
    """

    def __init__(self, tokenizer: Any, *, begun: bool = False) -> None:
        starts = getattr(tokenizer, "think_start_tokens", None)
        ends = getattr(tokenizer, "think_end_tokens", None)
        # Of what comes next, the part and the tag that ends it.
        known = bool(starts and ends)
        self._tags = {ANSWER: tuple(starts or ()), REASONING: tuple(ends or ())} if known else {}
        self.part = REASONING if begun and known else ANSWER
        """Of the next token that is no tag."""
        self._waiting: list[int] = []

    def push(self, token: int) -> list[str]:
        """Take a token.

        Returns:
            The parts of the tokens that are decided now, in their order: of those that waited, then
            of this one. Each is answer, reasoning or tag.
        """
        if not self._tags:
            return [self.part]
        decided: list[str] = []
        waiting = self._waiting
        waiting.append(token)
        while waiting:
            tag = self._tags[self.part]
            if tuple(waiting) == tag[: len(waiting)]:
                if len(waiting) == len(tag):
                    decided += [TAG] * len(tag)
                    waiting.clear()
                    self.part = ANSWER if self.part == REASONING else REASONING
                break
            decided.append(self.part)
            del waiting[0]
        return decided

    def finish(self) -> list[str]:
        """The parts of those that still wait, at the end of the reply."""
        decided = [self.part] * len(self._waiting)
        self._waiting.clear()
        return decided


def opened(tokenizer: Any, prompt: Sequence[int]) -> bool:
    """Whether a prompt ends with the tag that begins reasoning, and white space at most."""
    tag = getattr(tokenizer, "think_start_tokens", None)
    if not tag:
        return False
    end, size = len(prompt), len(tag)
    while end >= size:
        if tuple(prompt[end - size : end]) == tuple(tag):
            return True
        if tokenizer.decode([prompt[end - 1]]).strip():
            return False
        end -= 1
    return False
