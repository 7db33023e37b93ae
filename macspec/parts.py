"""Which part of a reply a token belongs to: the reasoning, the answer, or the tags around them.

Most models put their reasoning between two tags. Others write messages, each after a header that
names its channel (harmony, the format of gpt-oss) or whom it is for (Muse Spark): reasoning, calls
of tools, the answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ANSWER, REASONING, TAG = "answer", "reasoning", "tag"

HEADER = "header"
"""Where a reply is inside of a header, whose end decides about the part."""

TAGS = (
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
"""Special tokens of Mistral, Seed-OSS and Command A, which mlx-lm does not look for."""

KIMI = ("◁think▷", "◁/think▷")
"""Tags that Kimi writes with ordinary tokens."""

MARKS = (
    *("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"),
    *("<|end|>", "<|call|>", "<|return|>", "<|eom|>", "<|eot|>"),
)
"""The special tokens in and around headers."""

HARMONY = (
    "<|channel|>analysis<|message|>",
    "<|end|><|start|>assistant",
    "<|channel|>final<|message|>",
)
MUSE = ("to=self<|message|>", "<|eom|><|start|>assistant ", "to=user<|message|>")
"""What stands before the reasoning, after it, and before the answer."""

HEADER_LENGTH = 48
"""Tokens of the longest header; what goes on for longer is text."""

TagsAfter = Sequence[tuple[tuple[int, ...], str]]


@dataclass(frozen=True, eq=False)
class Format:
    """How a model marks the parts of its replies; by default it does not."""

    tokenizer: Any = field(repr=False)
    """mlx-lm's ``TokenizerWrapper``."""
    tags: Mapping[str, TagsAfter] = field(default_factory=dict)
    """For each part the tags that may end it, and the part after each."""
    marks: frozenset[int] = frozenset()
    """The tokens in and around headers, if there are headers."""
    body: int | None = None
    """The one of them that ends a header."""
    opening: str = ""
    """What a model writes before its reasoning."""
    closing: str = ""
    """What it writes between reasoning and answer."""
    plain: str = ""
    """What it writes before an answer without reasoning."""

    @property
    def marked(self) -> bool:
        return bool(self.tags) or self.body is not None

    def part_after(self, prompt: Sequence[int]) -> str:
        """The part in which the reply to a prompt begins."""
        if self.body is None:
            return REASONING if self._opened(prompt) else ANSWER
        at = next((at for at in reversed(range(len(prompt))) if prompt[at] in self.marks), None)
        if at is None:
            return ANSWER
        if prompt[at] != self.body:
            return HEADER
        return self.part_of(prompt[max(at - HEADER_LENGTH, 0) : at])[0]

    def part_of(self, header: Sequence[int]) -> tuple[str, bool]:
        """The part of a message with this header, and whether it is a call of a tool."""
        text = self.tokenizer.decode(list(header)).rpartition("<|start|>")[2]
        if re.search(r"(?<![\w.=])analysis\b|\bto=self\b", text):
            return REASONING, False
        return ANSWER, bool(re.search(r"\bto=(?!user\b|commentary\b)", text))

    def written(self, reasoning: str, answer: str, part: str) -> str:
        """A reply so far as the model wrote it, after a prompt in which ``part`` begins."""
        if not self.marked:
            return answer
        reasoning, answer = self.inert(reasoning), self.inert(answer)
        begun = part == REASONING
        if reasoning:
            start = "" if begun else self.opening
            closed = f"{reasoning.rstrip(chr(10))}{self.closing}{answer}"
            return start + (closed if answer else reasoning)
        return (self.closing if begun else self.plain) + answer if answer else ""

    def inert(self, text: str) -> str:
        """Text of an earlier reply without the marks of headers, which templates refuse.

        Of a reply that was stored with its headers, the answer is left.
        """
        if self.body is None:
            return text
        if text.startswith("<|channel|>"):
            text = text.rpartition("<|channel|>final<|message|>")[2]
        for mark in MARKS:
            text = text.replace(mark, f"<{mark[2:-2]}>")
        return text

    def _opened(self, prompt: Sequence[int]) -> bool:
        """Whether it ends with a tag that starts reasoning, followed by white space at most."""
        starts = [tag for tag, after in self.tags.get(ANSWER, ()) if after == REASONING]
        end = len(prompt)
        while starts and end:
            if any(tuple(prompt[max(end - len(tag), 0) : end]) == tag for tag in starts):
                return True
            if self.tokenizer.decode([prompt[end - 1]]).strip():
                return False
            end -= 1
        return False


def format_of(tokenizer: Any) -> Format:
    """The format of the model with this tokenizer of mlx-lm's."""
    vocabulary: dict[str, int] = getattr(tokenizer, "get_vocab", dict)()
    harmony = "<|channel|>" in vocabulary
    if "<|message|>" in vocabulary and (
        harmony or getattr(tokenizer, "response_initial_state", None) == HEADER
    ):
        opening, closing, plain = HARMONY if harmony else MUSE
        return Format(
            tokenizer,
            marks=frozenset(vocabulary[mark] for mark in MARKS if mark in vocabulary),
            body=vocabulary["<|message|>"],
            opening=opening,
            closing=f"{closing}{plain}",
            plain=plain,
        )

    def ids(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False))

    start: Any = getattr(tokenizer, "think_start", None)
    end: Any = getattr(tokenizer, "think_end", None)
    starts = getattr(tokenizer, "think_start_tokens", None)
    ends = getattr(tokenizer, "think_end_tokens", None)
    gap = "\n"
    if not (starts and ends):
        known = [tags for tags in TAGS if all(tag in vocabulary for tag in tags)]
        template = str(getattr(tokenizer, "chat_template", ""))
        if "<|im_middle|>" in vocabulary or KIMI[0] in template:
            known.append(KIMI)
        start, end = known[0] if known else ("", "")
        if not start:
            return Format(tokenizer)
        starts, ends, gap = ids(start), ids(end), ""
    others = getattr(tokenizer, "structural_markers", ())
    gap = "" if others else gap
    markers = [(ids(text), ANSWER) for text in others]
    return Format(
        tokenizer,
        tags={
            ANSWER: ((tuple(starts), REASONING), *markers),
            REASONING: ((tuple(ends), ANSWER),),
        },
        opening=f"{start}{gap}",
        closing=f"{gap}{end}{gap * 2}{''.join(others[:1])}",
        plain="".join(others[:1]),
    )


class PartReader:
    """Tells the parts of a reply's tokens; some are decided only with later ones.

    Args:
        part: where the reply begins, as in ``Format.part_after``.
    """

    def __init__(self, format: Format, part: str = ANSWER) -> None:
        self._format = format
        self._waiting: list[int] = []
        self.part = part
        """Where the reply is."""

    def push(self, token: int) -> list[str]:
        """Take a token and return the parts, in order, of the tokens decided now: answer,
        reasoning or tag."""
        if self._format.body is not None:
            return self._of_message(token)
        decided: list[str] = []
        waiting = self._waiting
        waiting.append(token)
        while waiting:
            begun = [
                (len(tag), after)
                for tag, after in self._format.tags.get(self.part, ())
                if tag[: len(waiting)] == tuple(waiting)
            ]
            if not begun:
                decided.append(self.part)
                del waiting[0]
                continue
            for length, after in begun:
                if length == len(waiting):
                    decided += [TAG] * length
                    waiting.clear()
                    self.part = after
                    break
            break
        return decided

    def finish(self) -> list[str]:
        """The parts of the undecided tokens, at the end of the reply."""
        if self.part == HEADER:
            marks = self._format.marks
            return self._header(ANSWER if marks.isdisjoint(self._waiting) else TAG)
        decided = [self.part] * len(self._waiting)
        self._waiting.clear()
        return decided

    def _of_message(self, token: int) -> list[str]:
        format = self._format
        if self.part != HEADER and token not in format.marks:
            return [self.part]
        self._waiting.append(token)
        if token == format.body:
            self.part, call = format.part_of(self._waiting)
            # A call is answered by nobody here, so its header is shown: it says what was wanted.
            return self._header(ANSWER if call else TAG)
        self.part = HEADER
        if len(self._waiting) > HEADER_LENGTH:
            self.part = ANSWER
            return self._header(ANSWER)
        return []

    def _header(self, words: str) -> list[str]:
        """The parts of the header that waits, of whose words ``words``."""
        decided = [TAG if token in self._format.marks else words for token in self._waiting]
        self._waiting.clear()
        return decided
