"""The SQLite file, its schema, and the memory that replaces it when it cannot be used."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from ..errors import brief, cause
from ..io import private_folder
from ..plaintext import one_line

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

PATIENCE = 5.0
"""Seconds to wait for another process that is writing."""

COPY_LIMIT = 256 * 2**20
"""Bytes; a larger file that cannot be written is not copied to memory."""

LOCKED = "another program has locked it"

ADVICE = {
    "the disk is full": "free some space",
    "it cannot be written": "check its permissions",
    LOCKED: "quit that program",
    "it is damaged": "run macspec history repair, which keeps what can be read",
    "it belongs to another program": "move it away to start a new one",
    "it was written by a newer macspec": "update macspec",
}

REASONS = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it cannot be written",
    sqlite3.SQLITE_PERM: "it cannot be written",
    sqlite3.SQLITE_CANTOPEN: "it cannot be written",
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_CORRUPT: "it is damaged",
    sqlite3.SQLITE_NOTADB: "it is damaged",
}

APPLICATION_ID = 0x6D737063
"""Marks a SQLite file as a macspec store: "mspc"."""

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
"""A reply is indexed once it has ended. Text with half a surrogate pair is a BLOB."""

STEPS: tuple[str, ...] = (FIRST,)
"""Step i turns version i into version i + 1. A released step is never changed."""


class ForeignFileError(Exception):
    """The file is not a store, or a newer macspec wrote it; the message says which."""


FAILURES = (sqlite3.DatabaseError, OSError, ForeignFileError)

MISTAKES = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError)
"""The statement is at fault and not the file."""


class Database:
    """One connection shared by all threads, used by one at a time.

    When the file fails, what can be read of it is copied to memory, ``trouble`` says so, and work
    continues there; the file is not touched again.

    Args:
        path: the file, created if there is none; None: memory only, which is no trouble.
        salvage: adds to that memory what must not be missing from it.
    """

    def __init__(self, path: Path | None, salvage: Work[None], patience: float = PATIENCE) -> None:
        self.path = path
        self.trouble: str | None = None
        """Why nothing is being saved, in one line; None while it is."""
        self._salvage = salvage
        self._patience = patience
        self._lock = threading.RLock()
        try:
            self._connection = _memory() if path is None else _opened(path, patience)
        except FAILURES as error:
            self._fall_back(error)

    def read(self, work: Work[T]) -> T:
        """Run a query on one consistent view of the data."""
        return self.write(work, begin="BEGIN")

    def read_apart(self, work: Work[T]) -> T:
        """Run a long query on its own connection, so that nobody waits for it."""
        if self.path is not None and self.trouble is None:
            with (
                suppress(*FAILURES),
                closing(connected(self.path, "mode=ro", self._patience)) as connection,
            ):
                connection.execute("BEGIN")
                return work(connection)
        return self.read(work)

    def write(self, work: Work[T], *, durable: bool = True, begin: str = "BEGIN IMMEDIATE") -> T:
        """Run a transaction; if it raises, nothing is changed.

        Args:
            work: may be called again, on the memory.
            durable: survive a power loss too; a crash of the process never loses anything.
        """
        with self._lock:
            try:
                with self._transaction(durable, begin) as connection:
                    return work(connection)
            except sqlite3.DatabaseError as error:
                if self.path is None or self.trouble is not None or isinstance(error, MISTAKES):
                    raise
                self._fall_back(error)
                with self._transaction(durable, begin) as connection:
                    return work(connection)

    def close(self) -> None:
        with self._lock, suppress(sqlite3.Error):
            self._connection.close()

    @contextmanager
    def _transaction(self, durable: bool, begin: str) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        try:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            connection.execute(begin)
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            raise

    def _fall_back(self, error: Exception) -> None:
        assert self.path is not None
        why = reason(error)
        old = getattr(self, "_connection", None)
        if isinstance(error, ForeignFileError):
            self._connection = _memory()
        else:
            self._connection = _copied(self.path, self._patience) or _memory()
        if old is not None:
            with suppress(sqlite3.Error):
                old.close()
        advice = ADVICE.get(why, "check that file")
        self.trouble = one_line(
            f"conversations are not being saved: {self.path}: {why}; {advice}. They are kept in "
            "memory until macspec exits, and the file is left as it is"
        )
        with self._transaction(False, "BEGIN IMMEDIATE") as connection:
            self._salvage(connection)


def _opened(path: Path, patience: float) -> sqlite3.Connection:
    """The file: private, upgraded and writable."""
    private_folder(path.parent)
    _private(path.parent)
    # SQLite gives its other files this one's mode. An existing file must not be opened here:
    # closing it would drop the locks that SQLite holds on it elsewhere in this process.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    _private(path)
    connection = connected(path, "mode=rw", patience)
    try:
        version(connection)  # before anything is changed
        _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL"), patience)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")
        upgrade(connection)
        connection.execute("DELETE FROM chats WHERE 0")  # fails if it cannot be written
    except BaseException:
        connection.close()
        raise
    return connection


def connected(path: Path, mode: str, patience: float) -> sqlite3.Connection:
    """A connection as SQLite opens it: with ``mode=ro`` or ``mode=rw``, and nothing changed."""
    return _lenient(
        sqlite3.connect(
            f"{path.absolute().as_uri()}?{mode}",
            uri=True,
            timeout=patience,
            isolation_level=None,
            check_same_thread=False,
        )
    )


def _lenient(connection: sqlite3.Connection) -> sqlite3.Connection:
    """The connection, able to read a damaged file's invalid UTF-8."""
    connection.text_factory = lambda data: data.decode(errors="replace")
    return connection


def _memory() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA foreign_keys = ON")
    upgrade(connection)
    return _lenient(connection)


def _copied(path: Path, patience: float) -> sqlite3.Connection | None:
    """The file's content in memory; None if it is unreadable, damaged or too large."""
    until = time.monotonic() + patience
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        copy = _memory()
        with suppress(*FAILURES), closing(connected(path, mode, patience)) as source:
            version(source)
            (pages,) = source.execute("PRAGMA page_count").fetchone()
            (size,) = source.execute("PRAGMA page_size").fetchone()
            if pages * size <= COPY_LIMIT:
                source.backup(copy, progress=lambda *_: _check_deadline(until))
                if copy.execute("PRAGMA quick_check(1)").fetchone() == ("ok",):
                    upgrade(copy)
                    copy.execute("SELECT 1 FROM chats, messages, words LIMIT 1")
                    return copy
        copy.close()
    return None


def _check_deadline(until: float) -> None:
    """Raise after a deadline: a backup waits for a lock forever."""
    if time.monotonic() > until:
        raise sqlite3.OperationalError("database is locked")


def _patiently(work: Callable[[], object], patience: float) -> None:
    """Wait for locks where SQLite does not: while a file changes to WAL."""
    until = time.monotonic() + patience
    while True:
        try:
            work()
            return
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.02)


def _private(path: Path) -> None:
    """Remove the permissions of everyone but the user."""
    with suppress(OSError):
        mode = path.stat().st_mode
        if mode & 0o077:
            path.chmod(mode & 0o700)


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_ERROR) & 0xFF


def reason(error: Exception) -> str:
    """Why the file fails, in a clause."""
    if isinstance(error, PermissionError):
        return "it cannot be written"
    if isinstance(error, OSError):
        return cause(error)
    return REASONS.get(_code(error), brief(error))


def upgrade(connection: sqlite3.Connection, steps: Sequence[str] = STEPS) -> None:
    """Upgrade a file, which may be empty, to the newest version in one transaction."""
    if version(connection, len(steps)) == len(steps):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in steps[version(connection, len(steps)) :]:
            for statement in _statements(step):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def version(connection: sqlite3.Connection, newest: int = len(STEPS)) -> int:
    """The version of a file, 0 if it is empty.

    Raises:
        ForeignFileError: it is not a store, or of a newer version.
    """
    # In one statement, as another process may be creating the tables just now.
    mark, version, tables = connection.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
        "FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if mark != APPLICATION_ID and (mark or version or tables):
        raise ForeignFileError("it belongs to another program")
    if version and not tables:
        raise ForeignFileError("it is damaged")
    if version > newest:
        raise ForeignFileError("it was written by a newer macspec")
    return int(version)


def _statements(script: str) -> list[str]:
    """The statements of a script; ``executescript`` would commit the open transaction."""
    statements, begun = [], ""
    for line in script.splitlines(keepends=True):
        begun += line
        if sqlite3.complete_statement(begun):
            statements.append(begun)
            begun = ""
    return statements
