"""Calls of tools in a reply's text, read with mlx-lm's parser of the model's format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..events import Text
from .messages import ToolCall

ANSWER = "answer"


class ToolReader:
    """Takes the calls out of an answer; what cannot be read as one stays text.

    Args:
        tokenizer: mlx-lm's ``TokenizerWrapper``, which knows the format.
        tools: as they were offered to the model; without any, nothing is taken out.
    """

    def __init__(self, tokenizer: Any, tools: Sequence[Mapping[str, Any]]) -> None:
        self._tools = list(tools)
        self._start: str = (tokenizer.tool_call_start or "") if tools else ""
        self._end: str = tokenizer.tool_call_end or ""
        self._parse = tokenizer.tool_parser
        self._held = ""
        """Text that may be, or is, part of a call."""
        self._inside = False

    def read(self, event: Text) -> Iterator[Text | ToolCall]:
        """The event without calls, then the calls that it completes."""
        if not self._start or event.part != ANSWER:
            yield event
            return
        self._held += event.delta
        text, calls = self._taken()
        yield replace(event, delta=text, spans=())
        yield from calls

    def finish(self) -> Iterator[Text | ToolCall]:
        """What is left at the end of the reply; in some formats that ends a call, too."""
        held, self._held = self._held, ""
        calls = self._parsed(held) if self._inside and not self._end else None
        if calls is not None:
            yield from calls
        elif held:
            yield Text((self._start if self._inside else "") + held, ())

    def _taken(self) -> tuple[str, list[ToolCall]]:
        text, calls = "", []
        while True:
            mark = self._end if self._inside else self._start
            at = self._held.find(mark) if mark else -1
            if at < 0:
                break
            before, self._held = self._held[:at], self._held[at + len(mark) :]
            if not self._inside:
                text += before
            elif (found := self._parsed(before)) is not None:
                calls += found
            else:
                text += self._start + before + self._end
            self._inside = not self._inside
        if not self._inside:
            safe = len(self._held) - _overlap(self._held, self._start)
            text, self._held = text + self._held[:safe], self._held[safe:]
        return text, calls

    def _parsed(self, text: str) -> list[ToolCall] | None:
        """The calls in a text; None where it is no call."""
        try:
            found = self._parse(text, self._tools)
            return [
                ToolCall(str(call["name"]), json.dumps(call["arguments"]))
                for call in (found if isinstance(found, list) else [found])
            ]
        except Exception:  # Each parser raises its own.
            return None


def _overlap(text: str, mark: str) -> int:
    """Length of the longest end of a text that begins a mark."""
    lengths = range(min(len(text), len(mark) - 1), 0, -1)
    return next((length for length in lengths if mark.startswith(text[-length:])), 0)
