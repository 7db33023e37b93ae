"""One SQLite file, and memory where the file cannot be used."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from ..errors import brief
from ..plaintext import one_line
from . import schema
from .schema import ForeignFileError

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

PATIENCE = 5.0
"""Seconds to wait for another process that is writing."""

COPY_LIMIT = 256 * 2**20
"""Bytes of a file that cannot be written and is read into memory; of a larger one nothing is."""

ADVICE = {
    "the disk is full": "free some space",
    "it cannot be written": "see to its permissions",
    "another program holds it": "end that program",
    "it is damaged": "move it away to begin a new one, or repair it with sqlite3's .recover",
    "it is another program's database": "move it away to begin a new one",
    "it was made by a newer macspec": "update this one",
}

REASONS = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it cannot be written",
    sqlite3.SQLITE_PERM: "it cannot be written",
    sqlite3.SQLITE_CANTOPEN: "it cannot be written",
    sqlite3.SQLITE_BUSY: "another program holds it",
    sqlite3.SQLITE_LOCKED: "another program holds it",
    sqlite3.SQLITE_CORRUPT: "it is damaged",
    sqlite3.SQLITE_NOTADB: "it is damaged",
}

FAILURES = (sqlite3.DatabaseError, OSError, ForeignFileError)


class Database:
    """A connection that any thread may use, one at a time.

    When the file fails, its content is copied to memory as far as it can be read, ``trouble`` says
    so, and everything goes on there; the file is not touched again.

    Args:
        path: the file, made where there is none; None: memory from the start, which is no trouble.
        salvage: puts into the memory what of it must not be missing.
        patience: seconds to wait for other processes.
    """

    def __init__(self, path: Path | None, salvage: Work[None], patience: float = PATIENCE) -> None:
        self.path = path
        self.trouble: str | None = None
        """Why nothing is saved, in one line; None while it is."""
        self._salvage = salvage
        self._patience = patience
        self._lock = threading.RLock()
        try:
            self._connection = _memory() if path is None else _opened(path, patience)
        except FAILURES as error:
            self._fall_back(error)

    def read(self, work: Work[T]) -> T:
        """Do something that changes nothing, in one view of the data."""
        return self.write(work, begin="BEGIN")

    def aside(self, work: Work[T]) -> T:
        """Do something long that changes nothing, on a connection of its own: nobody waits."""
        if self.path is not None and self.trouble is None:
            with (
                suppress(*FAILURES),
                closing(_connected(self.path, "mode=ro", self._patience)) as connection,
            ):
                connection.execute("BEGIN")
                return work(connection)
        return self.read(work)

    def write(self, work: Work[T], *, durable: bool = True, begin: str = "BEGIN IMMEDIATE") -> T:
        """Do something as a whole or, if it raises, not at all.

        Args:
            work: may be called a second time, on the memory.
            durable: also after a loss of power; a crash of the process loses nothing either way.
        """
        with self._lock:
            try:
                with self._transaction(durable, begin) as connection:
                    return work(connection)
            except sqlite3.DatabaseError as error:
                if self.path is None or self.trouble is not None or _mistaken(error):
                    raise
                self._fall_back(error)
                with self._transaction(durable, begin) as connection:
                    return work(connection)

    def close(self) -> None:
        """Let go of the file."""
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
        why = _reason(error)
        old = getattr(self, "_connection", None)
        if isinstance(error, ForeignFileError):
            self._connection = _memory()
        else:
            self._connection = _copied(self.path, self._patience) or _memory()
        if old is not None:
            with suppress(sqlite3.Error):
                old.close()
        advice = ADVICE.get(why, "see what is wrong with it")
        self.trouble = one_line(
            f"conversations are not being saved: {self.path}: {why}; {advice}. They are kept in "
            "memory until macspec ends, and the file stays as it is"
        )
        with self._transaction(False, "BEGIN IMMEDIATE") as connection:
            self._salvage(connection)


def _opened(path: Path, patience: float) -> sqlite3.Connection:
    """The file, private, up to date and writable."""
    for folder in (path.parent.parent, path.parent):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _private(path.parent)
    # SQLite gives its other files the mode of this one. A file that is there is not opened here:
    # closing it would drop the locks that SQLite holds on it elsewhere in this process.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    _private(path)
    connection = _connected(path, "mode=rw", patience)
    try:
        schema.check(connection)
        _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL"), patience)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")
        schema.upgrade(connection)
        connection.execute("DELETE FROM chats WHERE 0")  # proves that it can be written
    except BaseException:
        connection.close()
        raise
    return connection


def _connected(path: Path, mode: str, patience: float) -> sqlite3.Connection:
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
    """A connection that reads what is no UTF-8, should a file hold it."""
    connection.text_factory = lambda data: data.decode(errors="replace")
    return connection


def _memory() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA foreign_keys = ON")
    schema.upgrade(connection)
    return _lenient(connection)


def _copied(path: Path, patience: float) -> sqlite3.Connection | None:
    """The file's content in memory; None if it cannot be read, or is damaged or too large."""
    until = time.monotonic() + patience
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        copy = _memory()
        with suppress(*FAILURES), closing(_connected(path, mode, patience)) as source:
            schema.check(source)
            (pages,) = source.execute("PRAGMA page_count").fetchone()
            (size,) = source.execute("PRAGMA page_size").fetchone()
            if pages * size <= COPY_LIMIT:
                source.backup(copy, progress=lambda *_: _still(until))
                if copy.execute("PRAGMA quick_check(1)").fetchone() == ("ok",):
                    schema.upgrade(copy)
                    copy.execute("SELECT 1 FROM chats, messages, words LIMIT 1")
                    return copy
        copy.close()
    return None


def _still(until: float) -> None:
    """A backup would wait for a lock for ever."""
    if time.monotonic() > until:
        raise sqlite3.OperationalError("database is locked")


def _patiently(work: Callable[[], object], patience: float) -> None:
    """SQLite does not wait by itself where a file changes to WAL."""
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
    """Take from others what they may do."""
    with suppress(OSError):
        mode = path.stat().st_mode
        if mode & 0o077:
            path.chmod(mode & 0o700)


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_ERROR) & 0xFF


def _mistaken(error: sqlite3.DatabaseError) -> bool:
    """Whether it is the statement's fault and not the file's."""
    mistakes = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError)
    return isinstance(error, mistakes)


def _reason(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "it cannot be written"
    if isinstance(error, OSError):
        return error.strerror or brief(error)
    return REASONS.get(_code(error), brief(error))
