"""A conversation as Markdown, to read: control sequences in it are shown and not obeyed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePath

from ..plaintext import neutral, one_line
from .records import ASSISTANT, COMPLETE, RAW, Chat, Message

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")


def markdown(chat: Chat, thread: Sequence[Message]) -> str:
    """The messages of one path, each under a heading, with model and time where they are known."""
    parts = [f"# {one_line(chat.title) or 'Untitled'}", f"*{_day(chat.made)}*"]
    if chat.system:
        parts += ["## System", whole(neutral(chat.system))]
    for message in thread:
        parts.append(f"## {heading(message)}")
        if message.reasoning:
            parts.append(_quoted(neutral(message.reasoning).strip("\n")))
        parts.append(whole(neutral(message.text).strip("\n")))
    return "\n\n".join(part for part in parts if part) + "\n"


def heading(message: Message) -> str:
    """Who said it, and when; for a reply also what became of it, if it is not complete."""
    who = "Text" if message.role == RAW else "You"
    if message.role == ASSISTANT:
        metadata = message.metadata
        who = model_name(metadata.model if metadata is not None else None)
    state = "" if message.state == COMPLETE else f", {message.state}"
    return f"{who} ({_day(message.made)}{state})"


def model_name(model: str | None) -> str:
    """A model as people call it: of a folder the last part."""
    if model is None:
        return "built-in"
    return one_line(PurePath(model).name if PurePath(model).is_absolute() else model)


def whole(text: str) -> str:
    """``text`` with its last code block closed, so that what follows stands outside of it."""
    fence = ""
    for line in text.splitlines():
        found = FENCE.match(line)
        if found is None:
            continue
        marks, rest = found.groups()
        if not fence:
            # With a backtick after them, backticks are inline code.
            fence = "" if marks[0] == "`" and "`" in rest else marks
        elif marks.startswith(fence) and not rest.strip():
            fence = ""
    return f"{text}\n{fence}" if fence else text


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _day(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return "no date"
