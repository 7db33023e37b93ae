from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from modelfolders import POCKET


@pytest.fixture
def copy(tmp_path: Path) -> Callable[..., Path]:
    """Copies of the built-in models: ``copy("draft", "name")`` is a folder to change."""

    def make(role: str = "draft", name: str = "model") -> Path:
        return Path(shutil.copytree(POCKET / role, tmp_path / name))

    return make
