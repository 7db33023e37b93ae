"""What must hold of every file of conversations."""

from __future__ import annotations

import sqlite3
from pathlib import Path


def check_sound(path: Path) -> None:
    """SQLite finds nothing wrong with a file, nor with its index of words."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.execute("INSERT INTO words(words, rank) VALUES ('integrity-check', 1)")
    finally:
        connection.close()
