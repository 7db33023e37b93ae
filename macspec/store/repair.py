"""Checking a file of conversations, and making a sound one from what can be read of it."""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, fields, replace
from itertools import count
from pathlib import Path
from typing import Any

from ..errors import BadOptionError, cause
from . import database, records
from .database import PATIENCE, Database, ForeignFileError
from .records import Chat, Message
from .valid import UNKNOWN_TIME, document, restored

MOST = 20
"""Problems that are listed."""

PROBED = 10_000
"""Ids that are tried one by one beyond the last one that could be read."""

COLUMNS = {
    "chats": [each.name for each in fields(Chat)],
    "messages": [each.name for each in fields(Message)],
}


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair has done."""

    chats: int
    messages: int
    """Kept, as the conversations."""
    aside: Path
    """Where the damaged file is now."""


def problems(path: Path) -> list[str]:
    """What is wrong with a file of conversations, a clause each; none if there is no file.

    Raises:
        BadOptionError: it is no file of macspec's, or of a newer one.
    """
    if not path.exists():
        return []
    found: list[str] = []
    try:
        with closing(_opened(path)) as connection:
            for problem in _problems(connection):
                found.append(problem)
                if len(found) > MOST:
                    return [*found[:MOST], "and more"]
    except sqlite3.DatabaseError as error:
        found.append(database.reason(error))
    return found


def repair(path: Path, now: float | None = None) -> Repaired:
    """Write what can be read to a new file, and set the old one aside beside it.

    Values that cannot be are left out, messages without a conversation get one, and an order that
    is no tree is cut.

    Raises:
        BadOptionError: there is no file, another process uses it, it is not of this macspec, or the
            folder cannot be written.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    aside = path.with_name(f"{path.stem}-damaged-{stamp}{path.suffix}")
    fresh = path.with_name(f"{path.stem}-repaired-{secrets.token_hex(4)}{path.suffix}")
    if not path.exists():
        raise BadOptionError("there are no saved conversations to repair")
    if aside.exists():
        raise BadOptionError(f"{aside} exists: wait a second, then repair again")
    try:
        with closing(_opened(path)) as old:
            _hold(old)
            chats, messages = _salvaged(old)
            made = Database(fresh, lambda connection: None)
            made.write(lambda connection: _fill(connection, chats, messages))
            made.close()
            if made.trouble is not None:
                raise BadOptionError(made.trouble)
            for end in ("-wal", "-shm", ""):
                with suppress(FileNotFoundError):
                    os.rename(f"{path}{end}", f"{aside}{end}")
            os.rename(fresh, path)
    except OSError as error:
        raise BadOptionError(f"{path} cannot be repaired: {cause(error)}") from None
    finally:
        for end in ("-wal", "-shm", ""):
            Path(f"{fresh}{end}").unlink(missing_ok=True)
    return Repaired(len(chats), len(messages), aside)


def _opened(path: Path) -> sqlite3.Connection:
    connection = database.connected(path, "mode=rw", PATIENCE)
    try:
        database.version(connection)
    except ForeignFileError as error:
        connection.close()
        if "damaged" not in str(error):
            raise BadOptionError(f"{path}: {error}") from None
        return database.connected(path, "mode=rw", PATIENCE)
    except sqlite3.DatabaseError:
        pass  # It is damaged, which is told later.
    return connection


def _hold(connection: sqlite3.Connection) -> None:
    """Put all of the file in one place, and keep other processes out."""
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.DatabaseError as error:
        if database.reason(error) == database.LOCKED:
            raise BadOptionError("another macspec uses the conversations: quit it first") from None


def _problems(connection: sqlite3.Connection) -> Iterator[str]:
    for (line,) in connection.execute(f"PRAGMA integrity_check({MOST})"):
        if line != "ok":
            yield str(restored(line))
    for table, row, other, _ in connection.execute("PRAGMA foreign_key_check"):
        yield f"row {row} of {table} belongs to a row of {other} that is not there"
    try:
        connection.execute("INSERT INTO words(words, rank) VALUES ('integrity-check', 1)")
    except sqlite3.DatabaseError as error:
        yield f"the index of words: {database.reason(error)}"
    for row in connection.execute(records.SELECT_CHAT):
        yield from _unlike("chats", row, records.CHAT_COLUMNS)
    for row in connection.execute(records.SELECT_MESSAGE):
        yield from _unlike("messages", row, records.MESSAGE_COLUMNS)
    astray = """
        SELECT messages.id FROM messages LEFT JOIN messages AS above ON above.id = messages.parent
        WHERE messages.parent IS NOT NULL
            AND (messages.parent >= messages.id OR above.chat IS NOT messages.chat)
    """
    for (id,) in connection.execute(astray):
        yield f"message {id} does not follow a message of its conversation"
    lost = """
        SELECT chats.id FROM chats LEFT JOIN messages ON messages.id = leaf
        WHERE leaf IS NOT NULL AND messages.chat IS NOT chats.id
    """
    for (id,) in connection.execute(lost):
        yield f"conversation {id} shows a message that is not its own"


def _unlike(table: str, row: Sequence[Any], columns: Sequence[Any]) -> Iterator[str]:
    """The values of a row that cannot be."""
    for name, value, read in zip(COLUMNS[table], row, columns, strict=True):
        known, here = read(value), restored(value)
        if name in ("sampling", "metadata") and value is not None:
            values = document(value)
            sound = isinstance(values, dict) and (name == "sampling" or _kept(values, known))
        else:
            sound = known == here
        if not sound:
            what = "conversation" if table == "chats" else "message"
            yield f"{name} of {what} {row[0]} cannot be"


def _kept(values: Mapping[str, Any], metadata: Any) -> bool:
    """Whether all fields of metadata have been read."""
    return all(
        getattr(metadata, name, None) is not None for name in values if values[name] is not None
    )


def _salvaged(connection: sqlite3.Connection) -> tuple[list[Chat], list[Message]]:
    """All that can be read, with values that can be, as trees."""
    chats: dict[int, Chat] = {}
    uids: set[str] = set()
    for row in _rows(connection, f"SELECT {records.CHAT_NAMES}, 0 FROM chats"):
        chat = records.chat_of(row)
        uid = chat.uid if chat.uid and chat.uid not in uids else secrets.token_hex(16)
        uids.add(uid)
        chats[chat.id] = replace(chat, uid=uid)
    trees: dict[int, dict[int, Message]] = {id: {} for id in chats}
    for row in sorted(_rows(connection, records.SELECT_MESSAGE)):
        message = records.message_of(row)
        tree = trees.setdefault(message.chat, {})
        if message.parent not in (None, *tree):
            message = replace(message, parent=max(tree, default=None))
        tree[message.id] = message
    for id, tree in trees.items():
        chat = chats.get(id) or _found(id)
        times = [chat.made, *(message.made for message in tree.values())]
        leaf = chat.leaf if chat.leaf in tree else max(tree, default=None)
        chats[id] = replace(chat, leaf=leaf, changed=chat.changed or max(times))
    return list(chats.values()), [each for tree in trees.values() for each in tree.values()]


def _found(id: int) -> Chat:
    """A conversation for messages whose own is lost."""
    uid, title = secrets.token_hex(16), f"Recovered conversation {id}"
    return Chat(id, uid, title, records.BY_USER, "", {}, "", None, UNKNOWN_TIME, UNKNOWN_TIME)


def _rows(connection: sqlite3.Connection, select: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a table: in order, and where that breaks off, from the end and one by one."""
    seen: set[int] = set()
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.DatabaseError):
            for row in connection.execute(f"{select} ORDER BY id {order}"):
                if row[0] in seen:
                    return
                seen.add(row[0])
                yield row
            if order == "ASC":
                return
    failures = 0
    for id in (it for it in count(1) if it not in seen):
        try:
            row = connection.execute(f"{select} WHERE id = ?", (id,)).fetchone()
        except sqlite3.DatabaseError:
            row = None
        failures = 0 if row is not None else failures + 1
        if row is not None:
            yield row
        elif failures > PROBED and id > max(seen, default=0):
            return


def _fill(
    connection: sqlite3.Connection, chats: Sequence[Chat], messages: Sequence[Message]
) -> None:
    for chat in chats:
        records.insert_chat(connection, chat, keep_id=True)
    for message in messages:
        records.insert_message(connection, message, keep_id=True)
