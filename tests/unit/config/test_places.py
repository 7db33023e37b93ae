"""Where macspec keeps things."""

from __future__ import annotations

from pathlib import Path

import pytest

from macspec.config.paths import cache_folder, config_file, config_folder, data_folder, state_folder


def test_one_folder_for_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MACSPEC_HOME", str(tmp_path))
    assert config_folder() == tmp_path / "config"
    assert config_file() == tmp_path / "config" / "config.toml"
    assert data_folder() == tmp_path / "data"
    assert cache_folder() == tmp_path / "cache"
    assert state_folder() == tmp_path / "state"


def test_else_the_systems_own_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MACSPEC_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("DATA", "CACHE", "CONFIG", "STATE"):
        monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)
    places = config_folder(), data_folder(), cache_folder(), state_folder()
    assert data_folder() != cache_folder()
    for place in places:
        assert place.is_relative_to(tmp_path)
        assert "macspec" in place.parts
