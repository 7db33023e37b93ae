"""What is put right when a store is opened, and what is removed for good."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from . import records
from .database import Database
from .streaming import Writers

KEEP_DELETED = 30 * 86400.0
"""Seconds after which a deleted conversation is removed from the disk."""


def tidy(database: Database, writers: Writers | None, now: float) -> None:
    """Mark replies that dead processes left open, and remove what was deleted long ago."""
    old = now - KEEP_DELETED
    unused = "unsent = '' AND id NOT IN (SELECT chat FROM messages)"
    purgeable = f"SELECT id FROM chats WHERE deleted < ? OR (changed < ? AND {unused})"
    open_by = f"SELECT DISTINCT writer FROM messages WHERE state = '{records.OPEN}'"

    def find(connection: sqlite3.Connection) -> tuple[list[str | None], list[int]]:
        names = [name for (name,) in connection.execute(open_by)]
        dead = [name for name in names if writers is None or not writers.alive(name)]
        return dead, [id for (id,) in connection.execute(purgeable, (old, old))]

    def mend(connection: sqlite3.Connection) -> None:
        dead, ids = find(connection)
        for name in dead:
            connection.execute(
                f"UPDATE messages SET state = '{records.CUT_OFF}', writer = NULL "
                f"WHERE state = '{records.OPEN}' AND writer IS ?",
                (name,),
            )
        purge(connection, ids)

    if any(database.read(find)):
        database.write(mend)
    if writers is not None and not database.trouble:
        writers.sweep()


def purge(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Remove conversations, and their words."""
    for id in ids:
        connection.execute("DELETE FROM messages WHERE chat = ?", (id,))
        connection.execute("DELETE FROM chats WHERE id = ?", (id,))
    if ids:
        # The index keeps the words of what was removed until its parts are merged.
        connection.execute("INSERT INTO words(words) VALUES ('optimize')")
