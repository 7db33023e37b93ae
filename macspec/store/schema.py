"""The tables, and how a file of an older version becomes one of this."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

APPLICATION_ID = 0x6D737063
"""Tells a macspec store from other SQLite files: "mspc"."""

FIRST = """
CREATE TABLE chats (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    uid TEXT NOT NULL UNIQUE,
    title TEXT NOT NULL,
    titled TEXT NOT NULL,
    system TEXT NOT NULL,
    sampling TEXT NOT NULL,
    unsent TEXT NOT NULL,
    leaf INTEGER,
    made REAL NOT NULL,
    changed REAL NOT NULL,
    deleted REAL,
    imported INTEGER
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    chat INTEGER NOT NULL REFERENCES chats(id),
    parent INTEGER REFERENCES messages(id),
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    reasoning TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    made REAL NOT NULL,
    making TEXT,
    writer TEXT
);
CREATE INDEX messages_by_chat ON messages(chat);
CREATE INDEX messages_by_parent ON messages(parent);
CREATE INDEX open_messages ON messages(writer) WHERE state = 'open';

CREATE VIEW settled AS SELECT id, text FROM messages WHERE state <> 'open';
CREATE VIRTUAL TABLE words USING fts5(
    text, content='settled', content_rowid='id', tokenize='unicode61 remove_diacritics 2'
);
CREATE TRIGGER message_added AFTER INSERT ON messages WHEN new.state <> 'open' BEGIN
    INSERT INTO words(rowid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER message_left BEFORE UPDATE OF text, state ON messages WHEN old.state <> 'open' BEGIN
    INSERT INTO words(words, rowid, text) VALUES ('delete', old.id, old.text);
END;
CREATE TRIGGER message_settled AFTER UPDATE OF text, state ON messages WHEN new.state <> 'open'
BEGIN
    INSERT INTO words(rowid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER message_removed AFTER DELETE ON messages WHEN old.state <> 'open' BEGIN
    INSERT INTO words(words, rowid, text) VALUES ('delete', old.id, old.text);
END;
"""
"""A streaming reply is indexed when it has ended. Text with half a surrogate pair is a BLOB."""

STEPS: tuple[str, ...] = (FIRST,)
"""Step i makes version i + 1 of version i. A released step is never changed."""


class ForeignFileError(Exception):
    """The file is no store, or a newer macspec's; it is left alone. The message says which."""


def check(connection: sqlite3.Connection) -> None:
    """Refuse what is no store, before anything is changed; an empty file is one to be.

    Raises:
        ForeignFileError: it is no store, or of a newer version.
        sqlite3.Error: it cannot be read.
    """
    _version(connection, len(STEPS))


def upgrade(connection: sqlite3.Connection, steps: Sequence[str] = STEPS) -> None:
    """Bring a file, which may be empty, to the newest version, in one transaction.

    Raises:
        ForeignFileError: it is no store, or of a newer version.
        sqlite3.Error: it cannot be read or written.
    """
    if _version(connection, len(steps)) == len(steps):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in steps[_version(connection, len(steps)) :]:
            for statement in _statements(step):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, newest: int) -> int:
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if mark != APPLICATION_ID and (mark or version or tables):
        raise ForeignFileError("it is another program's database")
    if version and not tables:
        raise ForeignFileError("it is damaged")
    if version > newest:
        raise ForeignFileError("it was made by a newer macspec")
    return int(version)


def _statements(script: str) -> list[str]:
    """The statements of a script; unlike ``executescript`` they run in the open transaction."""
    statements, begun = [], ""
    for line in script.splitlines(keepends=True):
        begun += line
        if sqlite3.complete_statement(begun):
            statements.append(begun)
            begun = ""
    return statements
