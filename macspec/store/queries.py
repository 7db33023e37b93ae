"""What is asked of the tables, inside a transaction."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from ..errors import BadOptionError
from .records import CUT_OFF, OPEN, RAW, USER, Chat, Message
from .rows import CHAT, MESSAGE, change, chat_of, insert_chat, insert_message, message_of

PATH = f"""
WITH RECURSIVE up(at) AS (
    VALUES (?) UNION ALL SELECT parent FROM messages JOIN up ON id = at WHERE parent < id
)
{MESSAGE} WHERE id IN (SELECT at FROM up) ORDER BY id
"""

LISTED = "deleted IS NULL AND (unsent <> '' OR id IN (SELECT chat FROM messages))"

CAN_GO_ON = f"""
deleted IS NULL AND leaf IS NOT NULL AND id NOT IN (SELECT chat FROM messages WHERE role = '{RAW}')
"""


def chat(connection: sqlite3.Connection, id: int) -> Chat:
    """A conversation, deleted or not.

    Raises:
        BadOptionError: there is none.
    """
    row = _row(connection, f"{CHAT} WHERE id = ?", id)
    if row is None:
        raise BadOptionError(
            f"there is no conversation {id}; macspec history list shows those that are there"
        )
    return chat_of(row)


def message(connection: sqlite3.Connection, id: int) -> Message:
    """A message.

    Raises:
        BadOptionError: there is none.
    """
    row = _row(connection, f"{MESSAGE} WHERE id = ?", id)
    if row is None:
        raise BadOptionError(f"there is no message {id}")
    return message_of(row)


def listed(connection: sqlite3.Connection, limit: int) -> list[Chat]:
    """Conversations that have something in them, the last changed first; limit -1: all."""
    order = f"{CHAT} WHERE {LISTED} ORDER BY changed DESC, id DESC LIMIT ?"
    return [chat_of(row) for row in connection.execute(order, (limit,))]


def deleted(connection: sqlite3.Connection, limit: int) -> list[Chat]:
    """Deleted conversations, the last deleted first; limit -1: all."""
    order = f"{CHAT} WHERE deleted IS NOT NULL ORDER BY deleted DESC, id DESC LIMIT ?"
    return [chat_of(row) for row in connection.execute(order, (limit,))]


def last_deleted(connection: sqlite3.Connection) -> list[Chat]:
    """The conversations that the last deletion took."""
    last = f"{CHAT} WHERE deleted = (SELECT max(deleted) FROM chats)"
    return [chat_of(row) for row in connection.execute(last)]


def last(connection: sqlite3.Connection) -> Chat | None:
    """The conversation that was changed last, of those that can go on."""
    row = _row(connection, f"{CHAT} WHERE {CAN_GO_ON} ORDER BY changed DESC, id DESC LIMIT 1")
    return None if row is None else chat_of(row)


def last_models(connection: sqlite3.Connection) -> dict[int, str | None]:
    """The target of each conversation's newest reply, by conversation; None: the built-in one."""
    newest = "SELECT max(id) FROM messages WHERE making IS NOT NULL GROUP BY chat"
    model = "json_extract(making, '$.model')"
    found = connection.execute(f"SELECT chat, {model} FROM messages WHERE id IN ({newest})")
    return {id: None if name is None else str(name) for id, name in found}


def messages(connection: sqlite3.Connection, chat: int) -> list[Message]:
    """All messages of a conversation, parents before their children."""
    rows = connection.execute(f"{MESSAGE} WHERE chat = ? ORDER BY id", (chat,))
    return [message_of(row) for row in rows]


def path(connection: sqlite3.Connection, leaf: int | None) -> list[Message]:
    """The messages from the first one to a leaf."""
    return [message_of(row) for row in connection.execute(PATH, (leaf,))]


def siblings(connection: sqlite3.Connection, id: int) -> list[int]:
    """The messages with the same parent, itself included, oldest first."""
    it = message(connection, id)
    beside = "SELECT id FROM messages WHERE chat = ? AND parent IS ? ORDER BY id"
    return [id for (id,) in connection.execute(beside, (it.chat, it.parent))]


def families(connection: sqlite3.Connection, chat: int) -> dict[int | None, list[int]]:
    """The messages of a conversation by their parent, oldest first."""
    found: dict[int | None, list[int]] = {}
    rows = connection.execute("SELECT id, parent FROM messages WHERE chat = ? ORDER BY id", (chat,))
    for id, parent in rows:
        found.setdefault(parent, []).append(id)
    return found


def prompts(connection: sqlite3.Connection, limit: int, longest: int) -> list[str | bytes]:
    """What the user asked last, the newest first, of conversations that are not deleted."""
    asked = (
        "SELECT messages.text FROM messages JOIN chats ON chats.id = chat "
        f"WHERE role = '{USER}' AND deleted IS NULL AND messages.id > coalesce(imported, 0) "
        "AND length(messages.text) <= ? ORDER BY messages.id DESC LIMIT ?"
    )
    return [text for (text,) in connection.execute(asked, (longest, limit))]


def newest_leaf(connection: sqlite3.Connection, id: int) -> int:
    """The end of the newest path through a message."""
    at, below = message(connection, id).id, "SELECT max(id) FROM messages WHERE parent = ?"
    while (newest := connection.execute(below, (at,)).fetchone()[0]) is not None:
        at = newest
    return at


def copy(connection: sqlite3.Connection, chat: Chat, messages: Sequence[Message]) -> int:
    """Add a conversation with new ids, and return its own.

    Args:
        messages: parents before their children, ids and leaf as they were.
    """
    id = insert_chat(connection, replace(chat, leaf=None, imported=None))
    ids: dict[int | None, int | None] = {None: None}
    for each in messages:
        state = CUT_OFF if each.state == OPEN else each.state
        moved = replace(each, chat=id, parent=ids[each.parent], state=state)
        ids[each.id] = insert_message(connection, moved)
    last = chat.imported
    foreign = [ids[each.id] for each in messages if last is not None and each.id <= last]
    fields = {"leaf": ids[chat.leaf], "imported": foreign[-1] if foreign else None}
    change(connection, "chats", id, fields)
    return id


def add_copies(
    connection: sqlite3.Connection, new: Sequence[tuple[Chat, Sequence[Message]]]
) -> list[Chat | None]:
    """Add conversations from elsewhere: each as it is here then; None: the very same is here."""
    added: list[Chat | None] = []
    for incoming, turns in new:
        last = max((each.id for each in turns), default=None)
        incoming = replace(incoming, deleted=None, imported=last)
        row = _row(connection, f"{CHAT} WHERE uid = ?", incoming.uid)
        if row is not None:
            here = chat_of(row)
            if _same(turns, messages(connection, here.id)):
                change(connection, "chats", here.id, {"deleted": None})
                added.append(None)
                continue
            incoming = replace(incoming, uid=secrets.token_hex(16))
        added.append(chat(connection, copy(connection, incoming, turns)))
    return added


def cut_off(connection: sqlite3.Connection, writer: str | None) -> None:
    """Mark what a process left open."""
    connection.execute(
        f"UPDATE messages SET state = '{CUT_OFF}', writer = NULL "
        f"WHERE state = '{OPEN}' AND writer IS ?",
        (writer,),
    )


def writers(connection: sqlite3.Connection) -> list[str | None]:
    """The processes that have left something open, alive or not."""
    names = connection.execute(f"SELECT DISTINCT writer FROM messages WHERE state = '{OPEN}'")
    return [name for (name,) in names]


def expendable(connection: sqlite3.Connection, time: float) -> list[int]:
    """Conversations that were deleted before a time, or begun and never used."""
    unused = "unsent = '' AND id NOT IN (SELECT chat FROM messages)"
    which = f"SELECT id FROM chats WHERE deleted < ? OR (changed < ? AND {unused})"
    return [id for (id,) in connection.execute(which, (time, time))]


def purge(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Remove conversations for good."""
    for id in ids:
        connection.execute("DELETE FROM messages WHERE chat = ?", (id,))
        connection.execute("DELETE FROM chats WHERE id = ?", (id,))
    if ids:
        # Until its parts are merged the index remembers the words of what was removed.
        connection.execute("INSERT INTO words(words) VALUES ('optimize')")


def _same(some: Sequence[Message], others: Sequence[Message]) -> bool:
    """Whether two trees differ in nothing but ids; a reply left open comes back cut off."""

    def normal(messages: Sequence[Message]) -> list[Message]:
        places: dict[int | None, int | None] = {None: None}
        places.update((each.id, place) for place, each in enumerate(messages))
        return [
            replace(
                each,
                id=place,
                chat=0,
                parent=places[each.parent],
                state=CUT_OFF if each.state == OPEN else each.state,
            )
            for place, each in enumerate(messages)
        ]

    return normal(some) == normal(others)


def _row(connection: sqlite3.Connection, sql: str, *values: object) -> tuple[object, ...] | None:
    row: tuple[object, ...] | None = connection.execute(sql, values).fetchone()
    return row
