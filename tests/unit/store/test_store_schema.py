"""Old files become new ones in steps, and each step as a whole or not at all."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import pytest
from soundstore import check_sound

from macspec.store import CUT_OFF, GenerationMetadata, Store
from macspec.store import database as schema
from macspec.store.database import STEPS, ForeignFileError

VERSIONS = Path(__file__).with_name("versions")
"""A file of every version, N.db.gz, written by the macspec that made it."""


def test_there_is_a_file_of_every_version() -> None:
    names = {path.name for path in VERSIONS.iterdir()}
    assert names == {f"{number}.db.gz" for number in range(1, len(STEPS) + 1)}


@pytest.mark.parametrize("version", range(1, len(STEPS) + 1))
def test_an_old_file_becomes_a_new_one(path: Path, version: int) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.decompress((VERSIONS / f"{version}.db.gz").read_bytes()))
    store = Store(path, clock=lambda: 1_700_000_100.0)
    assert store.trouble is None
    (chat,) = store.chats()
    assert (chat.title, chat.system, chat.unsent) == ("Pears", "Be brief.", "and then")
    assert chat.sampling == {"temperature": 0.2}
    asked, answer = store.thread(chat.id)
    assert (asked.text, answer.text, answer.reasoning) == ("Pears?", "Sweet \ud83d.", "Hm.")
    assert answer.metadata == GenerationMetadata(
        "org/big", "org/small", {"top_k": 3}, "keyed", "auto", "auto", 2**64 - 1, {"tokens": 2}
    )
    first, second = store.siblings(answer.id)
    assert store.message(first).state == CUT_OFF
    assert second == answer.id
    assert [hit.message for hit in store.search("sweet")] == [answer.id]
    assert [deleted.title for deleted in store.undo()] == ["Plums"]
    store.close()
    check_sound(path)


def connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def test_steps_are_taken_from_where_a_file_is(tmp_path: Path) -> None:
    connection = connected(tmp_path / "a.db")
    steps = ["CREATE TABLE a (x);", "ALTER TABLE a ADD y;\nINSERT INTO a VALUES (1, 2);"]
    schema.upgrade(connection, steps[:1])
    connection.execute("INSERT INTO a VALUES (0)")
    schema.upgrade(connection, steps)
    schema.upgrade(connection, steps)
    assert connection.execute("SELECT x, y FROM a").fetchall() == [(0, None), (1, 2)]


@pytest.mark.parametrize("broken", ["CREATE TABLE b (x);\nFAIL;", "DROP TABLE a;\nSELECT nothing;"])
def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path, broken: str) -> None:
    connection = connected(tmp_path / "a.db")
    schema.upgrade(connection, ["CREATE TABLE a (x);"])
    before = list(connection.iterdump())
    with pytest.raises(sqlite3.OperationalError):
        schema.upgrade(connection, ["CREATE TABLE a (x);", broken])
    assert list(connection.iterdump()) == before
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    connection = connected(tmp_path / "a.db")
    schema.upgrade(connection, ["CREATE TABLE a (x);"] * 1)
    connection.execute("PRAGMA user_version = 2")
    with pytest.raises(ForeignFileError, match="newer"):
        schema.upgrade(connection, ["CREATE TABLE a (x);"])


def test_a_step_may_hold_triggers(tmp_path: Path) -> None:
    connection = connected(tmp_path / "a.db")
    step = (
        "CREATE TABLE a (x);\nCREATE TRIGGER t AFTER INSERT ON a BEGIN\n"
        "    UPDATE a SET x = x + 1;\nEND;\nINSERT INTO a VALUES (1);\n"
    )
    schema.upgrade(connection, [step])
    assert connection.execute("SELECT x FROM a").fetchall() == [(2,)]
