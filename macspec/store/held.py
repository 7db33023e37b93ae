"""The conversations that this process works on, should their file fail."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from .records import Chat, Message
from .rows import insert_chat, insert_message


class Held:
    """Records as they were last read or written."""

    def __init__(self) -> None:
        self._chats: dict[int, Chat] = {}
        self._messages: dict[int, Message] = {}

    def __contains__(self, message: int | None) -> bool:
        """Whether a message is held, and with it its path."""
        return message is None or message in self._messages

    def hold(self, chat: Chat, messages: Iterable[Message] = ()) -> None:
        """Take a conversation, and messages with all that they follow."""
        self._chats[chat.id] = chat
        self._messages.update((message.id, message) for message in messages)

    def drop(self, ids: Iterable[int]) -> None:
        """Forget conversations."""
        for id in ids:
            self._chats.pop(id, None)
            for message in [each for each in self._messages.values() if each.chat == id]:
                del self._messages[message.id]

    def salvage(self, connection: sqlite3.Connection) -> None:
        """Add the messages that are not there, and put the conversations as they are held."""
        for chat in list(self._chats.values()):
            insert_chat(connection, chat, keep_id=True)
        for message in sorted(self._messages.values(), key=lambda each: each.id):
            insert_message(connection, message, keep_id=True)
