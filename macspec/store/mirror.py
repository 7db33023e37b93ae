"""What a process has seen of its conversations, kept in memory should the file fail."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from . import records
from .records import Chat, Message


class MemoryMirror:
    """The conversations this process works on, as last read or written, should the file fail."""

    def __init__(self) -> None:
        self._chats: dict[int, Chat] = {}
        self._messages: dict[int, Message] = {}

    def __contains__(self, message: int | None) -> bool:
        """Whether a message is here, and with it the path to it."""
        return message is None or message in self._messages

    def keep(self, chat: Chat, messages: Iterable[Message] = ()) -> None:
        """Keep a conversation, and messages together with everything before them."""
        self._chats[chat.id] = chat
        self._messages.update((message.id, message) for message in messages)

    def drop(self, ids: Iterable[int]) -> None:
        for id in ids:
            self._chats.pop(id, None)
            for message in [each for each in self._messages.values() if each.chat == id]:
                del self._messages[message.id]

    def forget(self, message: int) -> None:
        """Forget a message and what follows it."""
        gone = {message}
        for each in sorted(self._messages.values(), key=lambda each: each.id):
            if each.parent in gone:
                gone.add(each.id)
        for id in gone:
            self._messages.pop(id, None)

    def restore(self, connection: sqlite3.Connection) -> None:
        """Put the conversations into a database, and the messages it lacks."""
        for chat in list(self._chats.values()):
            records.insert_chat(connection, chat, keep_id=True)
        for message in sorted(self._messages.values(), key=lambda each: each.id):
            records.insert_message(connection, message, keep_id=True)
