"""What a conversation is called, when nobody has said."""

from __future__ import annotations

from collections.abc import Sequence

from ..plaintext import one_line, utf8
from .records import ASSISTANT, Message

LONGEST = 60
"""Characters of a title that is made here."""

READ = 2000
"""Characters of each message that count."""

REQUEST = (
    "Give the conversation below a title of at most six words, in its own language. "
    "Answer with the title alone.\n\n"
)


def first_line(text: str) -> str:
    """The first line that says something, cut to the length of a title."""
    lines = (one_line(line) for line in utf8(text[:READ]).decode().splitlines())
    return _short(next((line for line in lines if line), ""))


def request(thread: Sequence[Message]) -> str:
    """What to ask a model for, so that it gives a title to a conversation."""
    said = [("A" if turn.role == ASSISTANT else "Q", turn.text[:READ]) for turn in thread[:4]]
    return REQUEST + "\n\n".join(f"{who}: {text}" for who, text in said)


def from_model(reply: str) -> str:
    """The title in a model's answer to ``request``; empty if there is none."""
    line = first_line(reply).removeprefix("Title:").strip()
    return line.strip("\"'“”‘’«»*#`_ ").removesuffix(".")


def _short(line: str) -> str:
    if len(line) <= LONGEST:
        return line
    cut = line[: LONGEST - 1]
    words = cut.rpartition(" ")[0]
    return f"{words if len(words) > LONGEST // 2 else cut}…"
