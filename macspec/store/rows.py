"""Records to rows of the tables and back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from .records import OPEN, Chat, GenerationMetadata, Message

CHAT = """
SELECT id, uid, title, titled, system, sampling, unsent, leaf, made, changed, deleted,
    imported,
    (SELECT count(*) FROM messages WHERE messages.chat = chats.id) FROM chats
"""

MESSAGE = (
    "SELECT id, chat, parent, role, text, reasoning, state, reason, made, making FROM messages"
)


def stored(text: str) -> str | bytes:
    """``text`` as SQLite can hold it: with half of a surrogate pair it is no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def restored(value: str | bytes) -> str:
    """The reverse of ``stored``."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


def chat_of(row: tuple[Any, ...]) -> Chat:
    """The conversation in a row of ``CHAT``."""
    id, uid, title, titled, system, sampling, unsent, *rest = row
    return Chat(
        id,
        uid,
        restored(title),
        titled,
        restored(system),
        json.loads(sampling),
        restored(unsent),
        *rest,
    )


def message_of(row: tuple[Any, ...]) -> Message:
    """The message in a row of ``MESSAGE``."""
    id, chat, parent, role, text, reasoning, state, reason, made, metadata = row
    return Message(
        id,
        chat,
        parent,
        role,
        restored(text),
        restored(reasoning),
        state,
        reason,
        made,
        metadata_of(metadata),
    )


def metadata_of(text: str | None) -> GenerationMetadata | None:
    """How a reply was made, from its JSON."""
    if text is None:
        return None
    fields = json.loads(text)
    for name in ("spans", "reasoning_spans"):
        if fields.get(name) is not None:
            fields[name] = [(length, drafter) for length, drafter in fields[name]]
    return GenerationMetadata(**fields)


def metadata_text(metadata: GenerationMetadata | None) -> str | None:
    """The reverse of ``metadata_of``; ASCII whatever the names hold."""
    return None if metadata is None else json.dumps(asdict(metadata))


def insert_chat(connection: sqlite3.Connection, chat: Chat, *, keep_id: bool = False) -> int:
    """Add a conversation, without its messages, and return its id.

    Args:
        keep_id: with its id, in place of what has it.
    """
    cursor = connection.execute(
        "INSERT OR REPLACE INTO chats VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        if keep_id
        else "INSERT INTO chats VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            chat.id if keep_id else None,
            chat.uid,
            stored(chat.title),
            chat.titled,
            stored(chat.system),
            json.dumps(dict(chat.sampling)),
            stored(chat.unsent),
            chat.leaf,
            chat.made,
            chat.changed,
            chat.deleted,
            chat.imported,
        ),
    )
    return int(cursor.lastrowid or 0)


def insert_message(
    connection: sqlite3.Connection,
    message: Message,
    *,
    keep_id: bool = False,
    writer: str | None = None,
) -> int:
    """Add a message and return its id; ``keep_id``: if that is free."""
    cursor = connection.execute(
        "INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        if keep_id
        else "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            message.id if keep_id else None,
            message.chat,
            message.parent,
            message.role,
            stored(message.text),
            stored(message.reasoning),
            message.state,
            message.reason,
            message.made,
            metadata_text(message.metadata),
            writer if message.state == OPEN else None,
        ),
    )
    return int(cursor.lastrowid or 0)


def change(connection: sqlite3.Connection, table: str, id: int, fields: Mapping[str, Any]) -> None:
    """Set columns of one row; strings are made such as SQLite can hold."""
    names = ", ".join(f"{name} = ?" for name in fields)
    values = [stored(value) if isinstance(value, str) else value for value in fields.values()]
    connection.execute(f"UPDATE {table} SET {names} WHERE id = ?", (*values, id))
