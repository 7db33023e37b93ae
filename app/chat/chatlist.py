"""The conversations of the store, as a list to choose from. All texts in it are neutral."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from macspec.errors import BadOptionError
from macspec.plaintext import neutral, one_line
from macspec.store import ASSISTANT, Chat, Store, model_name, title_of
from macspec.store.transfer import format_of, write_new

LISTED = 500
"""Conversations in the list; older ones are found by searching."""

Excerpt = tuple[tuple[str, bool], ...]
"""Pieces of a text, each with whether it matches what was searched for."""


@dataclass(frozen=True, slots=True)
class ChatRow:
    """A conversation in the list."""

    id: int
    title: str
    changed: float
    """Seconds since 1970."""
    messages: int
    """On all paths."""
    model: str
    """Of the last reply; empty where there is none."""
    unsent: bool
    """Whether something is typed and not sent."""
    title_found: Excerpt = ()
    """The title in pieces, where that is what was found."""
    excerpt: Excerpt = ()
    """What stands around the place that was found."""
    who: str = ""
    """Who said it: you, or the model."""

    @property
    def about(self) -> str:
        """How much there is in it, and by which model."""
        count = "1 message" if self.messages == 1 else f"{self.messages} messages"
        parts = [count, self.model, "unsent text" if self.unsent else ""]
        return " · ".join(part for part in parts if part)


class ChatList:
    """What can be seen of, and done with, the conversations of a store.

    What does not exist any more raises ``BadOptionError``.

    Args:
        clock: seconds since 1970.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self.clock = clock

    def listed(self, limit: int = LISTED) -> list[ChatRow]:
        """Conversations, the last changed first."""
        models = self.store.last_models()
        return [_row(chat, models) for chat in self.store.chats(limit)]

    def found(self, query: str, limit: int = 50) -> list[ChatRow]:
        """Conversations with these words, the best first; without words all of them.

        May be called on another thread; it holds nobody up.
        """
        if not query.strip():
            return self.listed()
        models = self.store.last_models()
        rows = []
        for hit in self.store.search(query, limit):
            pieces = _pieces(hit.excerpt)
            if hit.message is None:
                rows.append(_row(hit.chat, models, title_found=pieces))
            else:
                who = "model" if hit.role == ASSISTANT else "you"
                rows.append(_row(hit.chat, models, excerpt=pieces, who=who))
        return rows

    def rename(self, id: int, title: str) -> None:
        """Give a title."""
        self.store.rename(id, one_line(title))

    def fork(self, id: int) -> int:
        """A copy of what is shown of a conversation, to go on in differently; its id."""
        leaf = self.store.chat(id).leaf
        if leaf is None:
            raise BadOptionError("nothing was said in this conversation yet")
        return self.store.fork(leaf).id

    def delete(self, id: int) -> None:
        """Delete a conversation; ``undo`` brings it back."""
        self.store.delete(id)

    def undo(self) -> int:
        """Restore what was deleted last; the first one's id."""
        return self.store.undo()[0].id

    def export(self, id: int, name: str) -> Path:
        """Write a conversation to a new file.

        Args:
            name: the file; with ``.json`` at its end it gets everything, else what is shown, as
                Markdown.

        Raises:
            BadOptionError: the file exists, or cannot be written.
        """
        path = os.path.expanduser(name.strip())
        return write_new(path, self.store.export([id], format_of(path)))


def shortened(title: str, length: int = 32) -> str:
    """A title with at most so many characters."""
    return title if len(title) <= length else f"{title[: length - 1].rstrip()}…"


def file_name(title: str, suffix: str) -> str:
    """A name of a new file for a conversation with this title, in the current folder."""
    stem = re.sub(r"[^\w]+", "-", title).strip("-").lower()[:40].strip("-") or "conversation"
    name, number = f"{stem}{suffix}", 2
    while Path(name).exists():
        name, number = f"{stem}-{number}{suffix}", number + 1
    return name


def when(seconds: float, now: float) -> str:
    """A time as people say it: of today by the clock, of another day by its date."""
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
    """An excerpt with at most so many characters before its first match, so that this is seen."""
    pieces, before = list(excerpt), ""
    while pieces and not pieces[0][1]:
        before += pieces.pop(0)[0]
    if not pieces or len(before) <= lead:
        return excerpt
    return (("…" + before[len(before) - lead + 1 :], False), *pieces)


def _row(
    chat: Chat,
    models: dict[int, str | None],
    *,
    title_found: Excerpt = (),
    excerpt: Excerpt = (),
    who: str = "",
) -> ChatRow:
    return ChatRow(
        id=chat.id,
        title=title_of(chat),
        changed=chat.changed,
        messages=chat.messages,
        model=model_name(models[chat.id]) if chat.id in models else "",
        unsent=bool(chat.unsent.strip()),
        title_found=title_found,
        excerpt=excerpt,
        who=who,
    )


def _pieces(excerpt: Iterable[tuple[str, bool]]) -> Excerpt:
    """Neutral and on one line, piece by piece."""
    spaced: Sequence[tuple[str, bool]] = [
        (re.sub(r"\s+", " ", neutral(text)), match) for text, match in excerpt
    ]
    return tuple((text, match) for text, match in spaced if text)
