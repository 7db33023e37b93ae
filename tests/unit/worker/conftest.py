from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import SCRIPTED

from macspec.worker import PairChoice, ProcessEngine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ProcessEngine]:
    """A child process with a scripted engine, loaded."""
    client = ProcessEngine(program=SCRIPTED, log=tmp_path / "state" / "engine.log")
    assert client.load(PairChoice()).result(60)
    yield client
    client.close()


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> Iterator[None]:
    """An engine collects garbage when it frees a pair: what other tests left is not searched."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
