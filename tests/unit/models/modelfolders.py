"""Model folders to load, made from the pair that ships."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

POCKET = Path(str(files("macspec.assets"))) / "pocket"
SHARED = Path(__file__).parents[4] / "shared" / "data" / "models"


@contextmanager
def edited(file: Path) -> Iterator[Any]:
    """A JSON file's content, written back when the block ends."""
    content = json.loads(file.read_text())
    yield content
    file.write_text(json.dumps(content))


def shared_model(name: str) -> str:
    """The path of a model under ``../shared``; skips where it is absent."""
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"../shared/data/models/{name} is not here")
    return str(folder)
