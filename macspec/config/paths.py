"""The folders in which macspec keeps its files; ``MACSPEC_HOME`` puts them all in one."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def config_folder() -> Path:
    """The user's settings."""
    return _under_home("config") or platformdirs.user_config_path("macspec", appauthor=False)


def config_file() -> Path:
    """The settings file, which need not exist."""
    return config_folder() / "config.toml"


def data_folder() -> Path:
    """Data that cannot be made again: conversations, past replies."""
    return _under_home("data") or platformdirs.user_data_path("macspec", appauthor=False)


def cache_folder() -> Path:
    """Data that can be made again."""
    return _under_home("cache") or platformdirs.user_cache_path("macspec", appauthor=False)


def state_folder() -> Path:
    """Logs, and the registry of running engines."""
    return _under_home("state") or platformdirs.user_state_path("macspec", appauthor=False)


def _under_home(name: str) -> Path | None:
    home = os.environ.get("MACSPEC_HOME")
    return Path(home) / name if home else None
