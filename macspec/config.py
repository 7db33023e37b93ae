"""Where macspec keeps things. ``MACSPEC_HOME`` puts all of them under one folder."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def data_folder() -> Path:
    """What the user would miss."""
    home = os.environ.get("MACSPEC_HOME")
    return Path(home) / "data" if home else platformdirs.user_data_path("macspec", appauthor=False)


def cache_folder() -> Path:
    """What can be made again."""
    home = os.environ.get("MACSPEC_HOME")
    return (
        Path(home) / "cache" if home else platformdirs.user_cache_path("macspec", appauthor=False)
    )
