"""Settings, and the folders in which macspec keeps its files."""

from __future__ import annotations

from .effective import Effective, Origin, load
from .paths import cache_folder, config_file, config_folder, data_folder, state_folder
from .schema import Config

__all__ = [
    "Config",
    "Effective",
    "Origin",
    "cache_folder",
    "config_file",
    "config_folder",
    "data_folder",
    "load",
    "state_folder",
]
