"""Where macspec keeps things."""

from __future__ import annotations

from pathlib import Path

import pytest

from macspec.config import cache_folder, data_folder


def test_one_folder_for_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MACSPEC_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "data"
    assert cache_folder() == tmp_path / "cache"


def test_else_the_systems_own_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MACSPEC_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    places = data_folder(), cache_folder()
    assert len(set(places)) == 2
    for place in places:
        assert place.is_relative_to(tmp_path)
        assert "macspec" in place.parts
