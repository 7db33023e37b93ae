"""A store in a folder of its own, and what must hold of every one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from soundstore import check_sound

from macspec.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a test's conversations are."""
    return tmp_path / "data" / "chats" / "chats.db"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[..., Store]]:
    """Opens the store once more, as another process would; at the end all are closed and sound."""
    stores: list[Store] = []

    def open_store(**settings: object) -> Store:
        stores.append(Store(path, **settings))  # type: ignore[arg-type]
        return stores[-1]

    yield open_store
    for each in stores:
        each.close()


@pytest.fixture
def store(path: Path, opened: Callable[..., Store]) -> Iterator[Store]:
    """A new store; sound at the end."""
    it = opened()
    yield it
    assert it.trouble is None
    check_sound(path)
