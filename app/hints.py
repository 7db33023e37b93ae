"""Which keys the last line names."""

from __future__ import annotations

from collections.abc import Sequence

from .keys import Keys
from .situation import Situation

WRITING = (
    ("help", "help"),
    ("tuning", "depth"),
    ("method", "method"),
    ("tint", "tint"),
    ("models", "models"),
    ("chats", "chats"),
    ("new", "new"),
    ("palette", "all commands"),
)
"""Actions and what their keys do in a word, while the prompt has the focus."""

READING = (
    ("help", "help"),
    ("copy", "copy"),
    ("regenerate", "again"),
    ("edit", "edit"),
    ("fork", "fork"),
    ("older", "versions"),
    ("depth", "depth"),
    ("method", "method"),
    ("tint", "tint"),
)
"""While the transcript or the panel has it: plain keys work there."""


def hints(keys: Keys, situation: Situation, writing: bool) -> Sequence[tuple[str, str]]:
    """Keys and what they do, the most important ones first."""

    def key(id: str) -> str:
        plain = [key for key in keys.of(id) if len(key) == 1]
        if not writing and plain:
            return plain[0]
        return keys.shown(id, short=True)

    named = [(key(id), what) for id, what in (WRITING if writing else READING)]
    if situation.busy:
        named.insert(0, (keys.shown("stop"), "stop"))
    elif not writing:
        named.insert(0, (keys.shown("stop"), "prompt"))
    return named
