"""What must hold of every file of conversations."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from macspec.app.chat.chatlist import find_chats, when
from macspec.app.chat.tree import Tree
from macspec.cli.history import _line
from macspec.store import Store
from macspec.store.transfer import from_json


def check_sound(path: Path) -> None:
    """SQLite finds nothing wrong with a file, nor with its index of words."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.execute("INSERT INTO words(words, rank) VALUES ('integrity-check', 1)")
    finally:
        connection.close()


def show_everything(store: Store) -> None:
    """What ``history`` and the app show of conversations works, and what is exported comes in."""
    chats = store.chats()
    for chat in (*chats, *store.deleted_chats()):
        assert _line(chat, 3).endswith("\n")
        assert when(chat.changed, 1e9)
        tree = Tree(store, "")
        tree.open(chat.id)
        for message in tree.thread:
            assert store.newest_leaf(message.id) >= message.id
    find_chats(store)
    find_chats(store, "b")
    store.search("a")
    store.last_chat()
    store.prompts(9)
    ids = [chat.id for chat in chats]
    assert store.export(ids, "markdown").isprintable() is not None
    assert len(from_json(store.export(ids, "json"))) == len(ids)
    assert store.trouble is None
