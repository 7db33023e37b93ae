"""A file whose columns hold what they never should: listed all the same, told, and repaired."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hostile import NUMBERS
from soundstore import check_sound, show_everything

from macspec.errors import BadOptionError
from macspec.store import CUT_OFF, GenerationMetadata, Store
from macspec.store.repair import problems, repair

COLUMNS = {
    "chats": "uid title titled system sampling unsent leaf made changed deleted imported",
    "messages": "parent role text reasoning state reason made making writer",
}

VALUES = [
    *(number for number in NUMBERS if -(2**63) <= number < 2**63),
    *("", "x" * 1000, "[", "[[[[", "{}", '{"temperature": "x", "a": 1}', '{"stats": 3}'),
    *('{"spans": [[1e9, 2]]}', "\x1b[2J", b"\xff\xfe", b"\xed\xa0", -0.0),
]


def filled(path: Path) -> None:
    store = Store(path)
    for number in range(3):
        chat = store.new_chat(sampling={"top_k": number})
        for said in ("a", "b"):
            leaf = store.chat(chat.id).leaf
            asked = store.add(chat.id, leaf, f"{said} {number}")
            reply = store.reply(chat.id, asked.id)
            reply.append("b " * 20)
            reply.finish("end", GenerationMetadata("m", stats={"tokens": 1}))
    store.close()


def put(path: Path, table: str, column: str, id: int, value: object) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        try:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE id = ?", (value, id))
            connection.commit()
        except sqlite3.IntegrityError:
            return False
    return True


def checked(path: Path) -> None:
    """Listed as it is; after a repair all of it is there, and sound."""
    store = Store(path)
    show_everything(store)
    before = {chat.id for chat in (*store.chats(), *store.deleted_chats())}
    store.close()
    damaged = problems(path)
    done = repair(path)
    assert done.aside.exists()
    assert problems(path) == []
    check_sound(path)
    store = Store(path)
    show_everything(store)
    after = {chat.id for chat in (*store.chats(), *store.deleted_chats())}
    assert before <= after or damaged
    assert len(store.messages(2)) == 4
    store.close()


@pytest.mark.parametrize("every", [61, pytest.param(4, marks=pytest.mark.slow)])
def test_any_value_in_any_column_stops_nothing(tmp_path: Path, every: int) -> None:
    whole = tmp_path / "whole.db"
    filled(whole)
    columns = [(table, column) for table, names in COLUMNS.items() for column in names.split()]
    cases = [(*column, value) for column in columns for value in VALUES]
    for number, (table, column, value) in enumerate(cases[::every]):
        path = tmp_path / str(number) / "chats.db"
        path.parent.mkdir()
        path.write_bytes(whole.read_bytes())
        if put(path, table, column, 1, value):
            checked(path)


def poisoned(path: Path) -> None:
    put(path, "chats", "changed", 2, 1e12)


def without_its_chat(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM chats WHERE id = 2")
        connection.commit()


def circular(path: Path) -> None:
    put(path, "messages", "parent", 5, 7)


def with_a_lost_parent(path: Path) -> None:
    put(path, "messages", "parent", 6, 9999)


def with_the_leaf_of_another(path: Path) -> None:
    put(path, "chats", "leaf", 2, 1)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (poisoned, "changed of conversation 2 cannot be"),
        (without_its_chat, "belongs to a row of chats that is not there"),
        (circular, "message 5 does not follow"),
        (with_a_lost_parent, "message 6 does not follow"),
        (with_the_leaf_of_another, "conversation 2 shows a message that is not its own"),
    ],
)
def test_what_is_wrong_is_told_and_repaired(
    path: Path, damage: Callable[[Path], None], says: str
) -> None:
    filled(path)
    assert problems(path) == []
    damage(path)
    assert any(says in problem for problem in problems(path))
    checked(path)


def test_an_unknown_date_is_shown_as_such(path: Path) -> None:
    filled(path)
    poisoned(path)
    store = Store(path)
    assert store.chat(2).changed == 0
    assert store.chats()[0].id == 2
    store.close()


def test_pages_of_noise_cost_only_what_was_on_them(path: Path) -> None:
    store = Store(path)
    for _ in range(40):
        chat = store.new_chat()
        for _ in range(4):
            store.add(chat.id, store.chat(chat.id).leaf, "words " * 200)
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 8192] = b"\xa5" * 8192
    path.write_bytes(data)
    assert problems(path) != []
    done = repair(path)
    assert done.aside.read_bytes() == bytes(data)
    assert done.messages > 100
    check_sound(path)
    assert problems(path) == []


def test_a_file_that_is_none_is_set_aside(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database " * 1000)
    assert problems(path) == ["it is damaged"]
    done = repair(path)
    assert (done.chats, done.messages) == (0, 0)
    assert done.aside.read_bytes() == b"no database " * 1000
    check_sound(path)


def test_a_file_in_use_is_not_repaired(path: Path) -> None:
    filled(path)
    store = Store(path)
    with pytest.raises(BadOptionError, match="quit it first"):
        repair(path)
    store.add(1, None, "still here")
    store.close()
    assert repair(path).messages == 13


def test_a_file_of_another_program_is_left_alone(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (a)")
    before = path.read_bytes()
    with pytest.raises(BadOptionError, match="belongs to another program"):
        problems(path)
    with pytest.raises(BadOptionError, match="belongs to another program"):
        repair(path)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_without_a_file_there_is_nothing_to_repair(path: Path) -> None:
    assert problems(path) == []
    with pytest.raises(BadOptionError, match="no saved conversations"):
        repair(path)
    assert not path.exists()


def test_an_open_reply_of_a_damaged_file_is_cut_off(path: Path) -> None:
    filled(path)
    put(path, "messages", "state", 4, "open")
    repair(path)
    store = Store(path)
    assert store.message(4).state == CUT_OFF
    store.close()
