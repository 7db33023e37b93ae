"""A file is replaced whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from macspec.io import write_atomic


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_text_and_bytes_replace_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "file"
    write_atomic(path, "ä", make_folder=True)
    assert path.read_bytes() == "ä".encode()
    write_atomic(path, b"\0", durable=True)
    assert path.read_bytes() == b"\0"
    assert [file.name for file in path.parent.iterdir()] == ["file"]


def test_permissions(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    write_atomic(path, "private", make_folder=True)
    assert (mode_of(path), mode_of(path.parent)) == (0o600, 0o700)
    path.chmod(0o640)
    write_atomic(path, "kept", keep_mode=True)
    assert mode_of(path) == 0o640
    write_atomic(path, "private again")
    assert mode_of(path) == 0o600
    umask = os.umask(0o022)
    try:
        write_atomic(path, "public", mode=0o666)
    finally:
        os.umask(umask)
    assert mode_of(path) == 0o644


def test_nothing_is_left_of_what_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")
    with pytest.raises(FileExistsError):
        write_atomic(path, "new", replace=False)
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "\ud800")

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_atomic(path, "new")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"
