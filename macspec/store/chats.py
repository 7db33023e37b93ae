"""What is done with conversations as wholes."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import BadOptionError
from . import queries
from .database import Database
from .held import Held
from .records import BY_USER, FIRST_LINE, TITLED, Chat, Hit, Message
from .rows import change, insert_chat
from .search import search


class Chats:
    """The conversations of a database; ``Store`` adds what is done inside of them.

    Args:
        held: what this process works on; kept up to date.
        clock: seconds since 1970.
    """

    def __init__(self, database: Database, held: Held, clock: Callable[[], float]) -> None:
        self._database, self._held, self._clock = database, held, clock
        self._read, self._write = database.read, database.write

    def new_chat(self, *, system: str = "", sampling: Mapping[str, Any] | None = None) -> Chat:
        """Begin a conversation. It is listed once it has a message, or something unsent."""
        now, uid = self._clock(), secrets.token_hex(16)
        new = Chat(0, uid, "", FIRST_LINE, system, sampling or {}, "", None, now, now)

        def begin(connection: sqlite3.Connection) -> Chat:
            return queries.chat(connection, insert_chat(connection, new))

        return self._hold(self._write(begin))

    def chat(self, id: int) -> Chat:
        """A conversation, deleted or not."""
        return self._read(lambda connection: queries.chat(connection, id))

    def chats(self, limit: int = -1) -> list[Chat]:
        """Conversations, the last changed first; limit -1: all."""
        return self._read(lambda connection: queries.listed(connection, limit))

    def deleted_chats(self, limit: int = -1) -> list[Chat]:
        """Deleted conversations that ``undo`` or ``restore`` can bring back, the last first."""
        return self._read(lambda connection: queries.deleted(connection, limit))

    def last_models(self) -> dict[int, str | None]:
        """The target of each conversation's newest reply, by conversation; None: the built-in."""
        return self._database.aside(queries.last_models)

    def last_chat(self) -> Chat | None:
        """The conversation that was changed last, of those that can go on."""
        return self._read(queries.last)

    def rename(self, id: int, title: str, by: str = BY_USER) -> Chat:
        """Give a title, unless it has one from somebody whose word counts for more (``TITLED``)."""

        def name(connection: sqlite3.Connection) -> Chat:
            if TITLED.index(by) >= TITLED.index(queries.chat(connection, id).titled):
                change(connection, "chats", id, {"title": title, "titled": by})
            return queries.chat(connection, id)

        return self._hold(self._write(name))

    def set_system(self, id: int, system: str) -> Chat:
        """The system prompt of a conversation."""
        return self._set(id, system=system)

    def set_sampling(self, id: int, sampling: Mapping[str, Any]) -> Chat:
        """What a conversation sets otherwise than the settings do; JSON holds it."""
        return self._set(id, sampling=json.dumps(dict(sampling)))

    def set_unsent(self, id: int, text: str) -> Chat:
        """What is typed and not sent."""
        return self._set(id, unsent=text)

    def set_leaf(self, id: int, leaf: int | None) -> Chat:
        """Where the conversation stands: the end of the path that is shown."""

        def stand(connection: sqlite3.Connection) -> Chat:
            if leaf is not None and queries.message(connection, leaf).chat != id:
                raise BadOptionError(f"message {leaf} is not of conversation {id}")
            change(connection, "chats", id, {"leaf": leaf})
            return queries.chat(connection, id)

        return self._hold(self._write(stand))

    def delete(self, *ids: int) -> list[Chat]:
        """Delete conversations; for thirty days they can be brought back."""
        now = self._clock()

        def remove(connection: sqlite3.Connection) -> list[Chat]:
            chats = [queries.chat(connection, id) for id in ids]
            for chat in chats:
                change(connection, "chats", chat.id, {"deleted": now})
            return chats

        return self._write(remove)

    def undo(self) -> list[Chat]:
        """Bring back what the last deletion took; nothing if there is none."""

        def restore(connection: sqlite3.Connection) -> list[Chat]:
            chats = queries.last_deleted(connection)
            for chat in chats:
                change(connection, "chats", chat.id, {"deleted": None})
            return chats

        return self._write(restore)

    def restore(self, id: int) -> Chat:
        """Bring one deleted conversation back."""
        return self._set(id, deleted=None)

    def purge(self, *ids: int) -> list[Chat]:
        """Remove conversations from the disk, without a way back."""

        def remove(connection: sqlite3.Connection) -> list[Chat]:
            chats = [queries.chat(connection, id) for id in ids]
            queries.purge(connection, ids)
            return chats

        chats = self._write(remove)
        self._held.drop(ids)
        return chats

    def fork(self, leaf: int) -> Chat:
        """A new conversation with a copy of everything up to a message."""
        now, uid = self._clock(), secrets.token_hex(16)

        def copy(connection: sqlite3.Connection) -> Chat:
            path = queries.path(connection, queries.message(connection, leaf).id)
            old = queries.chat(connection, path[-1].chat)
            new = replace(old, uid=uid, unsent="", leaf=leaf, changed=now, deleted=None)
            return queries.chat(connection, queries.copy(connection, new, path))

        return self._hold(self._write(copy))

    def search(self, query: str, limit: int = 50) -> list[Hit]:
        """Conversations with these words in their title or in one message, the best first.

        Each word may be the beginning of one; words in double quotes stand together. Where no
        words are found so, every place that holds the query as it stands is. However long that
        takes, writers are not held up.
        """
        return self._database.aside(lambda connection: search(connection, query, limit))

    def take_in(self, new: Sequence[tuple[Chat, Sequence[Message]]]) -> list[Chat | None]:
        """Add conversations from elsewhere, all or none of them, with ids of their own.

        Args:
            new: each with its messages, parents before their children.

        Returns:
            What was added; None: the very same is here already.
        """
        return self._write(lambda connection: queries.add_copies(connection, new))

    def _set(self, id: int, **fields: Any) -> Chat:
        def set_fields(connection: sqlite3.Connection) -> Chat:
            change(connection, "chats", queries.chat(connection, id).id, fields)
            return queries.chat(connection, id)

        return self._hold(self._write(set_fields))

    def _hold(self, chat: Chat) -> Chat:
        self._held.hold(chat)
        return chat
