"""The list of stored conversations. All texts in it are neutral."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from macspec.errors import BadOptionError
from macspec.plaintext import neutral
from macspec.store import ASSISTANT, Chat, Hit, Store, model_name
from macspec.store.transfer import format_of, write_file, write_new

LISTED = 500
"""Conversations in the list; a search finds older ones too."""

FOUND = 50
"""Conversations that a search finds at most."""

Excerpt = tuple[tuple[str, bool], ...]
"""Pieces of a text, each with whether it matches the search."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A conversation to open, at a message that has the words of a search, if there is one."""

    chat: int
    message: int | None = None
    words: str = ""


def pattern_of(words: str) -> re.Pattern[str]:
    """Matches each of the words, and quoted ones together."""
    terms = [quoted or word for quoted, word in re.findall(r'"([^"]+)"|([^\s"]+)', words)]
    return re.compile("|".join(map(re.escape, terms)) or "(?!)", re.IGNORECASE)


def has_all(text: str, words: str) -> bool:
    """Whether a text has every one of the words."""
    terms = [quoted or word for quoted, word in re.findall(r'"([^"]+)"|([^\s"]+)', words)]
    return bool(terms) and all(term.casefold() in text.casefold() for term in terms)


@dataclass(frozen=True, slots=True)
class ChatRow:
    """A conversation in the list."""

    chat: Chat
    model: str
    """Of the last reply; empty without one."""
    excerpt: Excerpt = ()
    """The text around the match, or the title that matches."""
    who: str = ""
    """Who wrote the text: you, or the model; empty: it is the title."""
    message: int | None = None
    """The one with the match."""

    @property
    def about(self) -> str:
        """How many messages it has on all paths, and by which model."""
        count = "1 message" if self.chat.messages == 1 else f"{self.chat.messages} messages"
        parts = [count, self.model, "unsent text" if self.chat.unsent.strip() else ""]
        return " · ".join(part for part in parts if part)


def find_chats(store: Store, query: str = "", limit: int | None = None) -> list[ChatRow]:
    """Conversations with these words, the best match first; without words the newest changes.

    May be called on another thread, and blocks no writer.
    """
    if query.strip():
        hits = store.search(query, limit or FOUND)
    else:
        hits = [Hit(chat, None, "", ()) for chat in store.chats(limit or LISTED)]
    models = store.last_models()
    rows = []
    for hit in hits:
        model = model_name(models[hit.chat.id]) if hit.chat.id in models else ""
        who = "" if hit.message is None else "model" if hit.role == ASSISTANT else "you"
        rows.append(ChatRow(hit.chat, model, _pieces(hit.excerpt), who, hit.message))
    return rows


class Exports:
    """Writes conversations to files; over an existing one only if asked for twice in a row."""

    def __init__(self, store: Store) -> None:
        self._store, self._refused = store, ""

    def write(self, id: int, name: str) -> Path:
        """Write a conversation: all of it as ``.json``, else what is shown as Markdown.
        BadOptionError: the file exists, or cannot be written."""
        path = os.path.expanduser(name.strip())
        text = self._store.export([id], format_of(path))
        if os.path.isfile(path) and path != self._refused:
            self._refused = path
            raise BadOptionError(f"{path} exists; do the same again to replace it")
        replace, self._refused = path == self._refused, ""
        return write_file(path, text) if replace else write_new(path, text)


def shortened(title: str, length: int = 32) -> str:
    return title if len(title) <= length else f"{title[: length - 1].rstrip()}…"


def file_name(title: str, suffix: str) -> str:
    """A new file name in the current folder, for a conversation with this title."""
    stem = re.sub(r"[^\w]+", "-", title).strip("-").lower()[:40].strip("-") or "conversation"
    name, number = f"{stem}{suffix}", 2
    while Path(name).exists():
        name, number = f"{stem}-{number}{suffix}", number + 1
    return name


def when(seconds: float, now: float) -> str:
    """A time for people: of the last days with the time, else the date."""
    try:
        then, today = datetime.fromtimestamp(seconds), datetime.fromtimestamp(now)
    except (OverflowError, OSError, ValueError):
        return "no date"
    days = (today.date() - then.date()).days
    if days == 0:
        return f"today {then:%H:%M}"
    if days == 1:
        return f"yesterday {then:%H:%M}"
    return f"{then:%a %H:%M}" if 1 < days < 7 else f"{then:%Y-%m-%d}"


def trimmed(excerpt: Excerpt, lead: int) -> Excerpt:
    """An excerpt with at most ``lead`` characters before its first match."""
    pieces, before = list(excerpt), ""
    while pieces and not pieces[0][1]:
        before += pieces.pop(0)[0]
    if not pieces or len(before) <= lead:
        return excerpt
    return (("…" + before[len(before) - lead + 1 :], False), *pieces)


def _pieces(excerpt: Iterable[tuple[str, bool]]) -> Excerpt:
    """Neutral and on one line, piece by piece."""
    spaced = [(re.sub(r"\s+", " ", neutral(text)), match) for text, match in excerpt]
    return tuple(piece for piece in spaced if piece[0])
