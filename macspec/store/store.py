"""Conversations on disk: one SQLite file, which several processes may use at once."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..config import data_folder
from ..errors import BadOptionError
from . import queries, titles
from .chats import Chats
from .database import PATIENCE, Database
from .held import Held
from .records import ASSISTANT, FIRST_LINE, OPEN, USER, Chat, GenerationMetadata, Message
from .rows import change, insert_message, metadata_text, restored
from .streaming import OpenReply
from .writers import Writers

KEEP_DELETED = 30 * 86400.0
"""Seconds after which a deleted conversation is removed from the disk."""


def store_path() -> Path:
    """Where this user's conversations are."""
    return data_folder() / "chats" / "chats.db"


class Store(Chats):
    """Conversations. Any thread may use it.

    Where the file cannot be used, conversations are kept in memory and ``trouble`` says why; that
    may happen at any time, and loses nothing that this process works on. What does not exist
    raises ``BadOptionError``, and then nothing is changed.

    Args:
        path: the file, made where there is none; None: memory, which then is no trouble.
        patience: seconds to wait for other processes that are writing.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        held = Held()
        super().__init__(Database(path, held.salvage, patience), held, clock)
        self._writers = Writers(path.parent) if path is not None else None
        self._tidy()

    @property
    def trouble(self) -> str | None:
        """Why nothing is saved, in one line; None while it is."""
        return self._database.trouble

    def close(self) -> None:
        """Let go of the file. A reply that is still open is cut off for whoever looks next."""
        self._database.close()
        if self._writers is not None:
            self._writers.leave()

    def message(self, id: int) -> Message:
        """A message."""
        return self._read(lambda connection: queries.message(connection, id))

    def messages(self, chat: int) -> list[Message]:
        """All messages of a conversation, parents before their children."""
        return self._read(lambda connection: queries.messages(connection, chat))

    def thread(self, chat: int, leaf: int | None = None) -> list[Message]:
        """The messages from the first one to a leaf; None: to where the conversation stands."""

        def walk(connection: sqlite3.Connection) -> tuple[Chat, list[Message]]:
            it = queries.chat(connection, chat)
            return it, queries.path(connection, it.leaf if leaf is None else leaf)

        it, path = self._read(walk)
        self._held.hold(it, path)
        return path

    def siblings(self, id: int) -> list[int]:
        """The messages that could stand in a message's place, itself included, oldest first."""
        return self._read(lambda connection: queries.siblings(connection, id))

    def families(self, chat: int) -> dict[int | None, list[int]]:
        """The messages of a conversation by the message they follow, oldest first."""
        return self._read(lambda connection: queries.families(connection, chat))

    def prompts(self, limit: int, longest: int = 20_000) -> list[str]:
        """What the user asked last in any conversation, the newest last.

        Args:
            longest: characters; longer ones are left out.
        """
        asked = self._read(lambda connection: queries.prompts(connection, limit, longest))
        return [restored(text) for text in reversed(asked)]

    def set_metadata(self, id: int, metadata: GenerationMetadata) -> Message:
        """How a reply that has ended was made, where more is known of it by now."""

        def put(connection: sqlite3.Connection) -> Message:
            change(connection, "messages", id, {"making": metadata_text(metadata)})
            return queries.message(connection, id)

        message = self._write(put)
        self._held.hold(self.chat(message.chat), [message])
        return message

    def newest_leaf(self, id: int) -> int:
        """The end of the newest path through a message: where to stand when it is chosen."""
        return self._read(lambda connection: queries.newest_leaf(connection, id))

    def add(self, chat: int, parent: int | None, text: str, role: str = USER) -> Message:
        """Add a turn after a parent (None: as a first one), and stand there."""
        return self._put(Message(0, chat, parent, role, text, made=self._clock()))

    def reply(
        self, chat: int, parent: int, metadata: GenerationMetadata | None = None
    ) -> OpenReply:
        """Begin a reply to a message, and stand there.

        Args:
            metadata: what is known before it begins.
        """
        new = Message(0, chat, parent, ASSISTANT, "", "", OPEN, None, self._clock(), metadata)
        return self._streaming(self._put(new))

    def resume(self, id: int) -> OpenReply:
        """Go on with a reply that has ended: what is appended follows its text."""
        writer = self._writer()

        def again(connection: sqlite3.Connection) -> tuple[Chat, list[Message]]:
            path = queries.path(connection, queries.message(connection, id).id)
            if path[-1].role != ASSISTANT or path[-1].state == OPEN:
                raise BadOptionError(f"message {id} is not a reply that can go on")
            fields = {"state": OPEN, "reason": None, "writer": writer}
            change(connection, "messages", id, fields)
            return queries.chat(connection, path[-1].chat), path

        chat, path = self._write(again)
        self._held.hold(chat, path)
        return self._streaming(path[-1])

    def _put(self, new: Message) -> Message:
        writer = self._writer() if new.state == OPEN else None

        def put(connection: sqlite3.Connection) -> tuple[Chat, list[Message]]:
            chat = queries.chat(connection, new.chat)
            if new.parent is not None and queries.message(connection, new.parent).chat != chat.id:
                raise BadOptionError(f"message {new.parent} is not of conversation {chat.id}")
            id = insert_message(connection, new, writer=writer)
            fields: dict[str, Any] = {"leaf": id, "changed": new.made}
            if not chat.title and chat.titled == FIRST_LINE:
                fields["title"] = titles.first_line(new.text)
            change(connection, "chats", chat.id, fields)
            known = new.parent in self._held
            path = [replace(new, id=id)] if known else queries.path(connection, id)
            return queries.chat(connection, chat.id), path

        chat, path = self._write(put)
        self._held.hold(chat, path)
        return path[-1]

    def _streaming(self, message: Message) -> OpenReply:
        def ended(message: Message) -> None:
            self._held.hold(self.chat(message.chat), [message])

        return OpenReply(self._database, message, ended, self._clock)

    def _writer(self) -> str | None:
        return None if self._writers is None or self.trouble else self._writers.enter()

    def _tidy(self) -> None:
        """Mark what dead processes left open, and remove what was deleted long ago."""
        writers, old = self._writers, self._clock() - KEEP_DELETED

        def dead(connection: sqlite3.Connection) -> list[str | None]:
            names = queries.writers(connection)
            return [name for name in names if writers is None or not writers.alive(name)]

        def tidy(connection: sqlite3.Connection) -> None:
            for name in dead(connection):
                queries.cut_off(connection, name)
            queries.purge(connection, queries.expendable(connection, old))

        if self._read(lambda connection: dead(connection) or queries.expendable(connection, old)):
            self._write(tidy)
        if writers is not None and not self.trouble:
            writers.sweep()
