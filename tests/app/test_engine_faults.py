"""The whole app around a real child process that is stopped, killed or hangs: Esc works, and the
next prompt too."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from macspec.worker import ProcessEngine

CHILD = Path(__file__).parents[1] / "unit" / "worker" / "scripted_engine.py"


@pytest.fixture
def child(tmp_path: Path) -> Iterator[ProcessEngine]:
    """The real loop of a child around a scripted engine."""
    engine = ProcessEngine(program=(sys.executable, str(CHILD)), log=tmp_path / "engine.log")
    yield engine
    engine.close()


async def works(it: Any) -> None:
    """The next prompt is answered."""
    conversation = it.app.conversation
    await it.until(lambda: not conversation.busy)
    turns = len(conversation.turns)
    await it.send("hello")
    await it.until(lambda: len(conversation.turns) == turns + 2 and not conversation.busy)
    assert conversation.turns[-1].text.startswith("0 1 2 ")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (signal.SIGSTOP, "is stopped by a signal"),
        pytest.param(signal.SIGKILL, "the engine stopped", marks=pytest.mark.slow),
        pytest.param(None, "has been silent for", marks=pytest.mark.slow),
    ],
)
async def test_a_fault_is_told_and_escape_works(
    running: Callable[..., Any],
    child: ProcessEngine,
    impatient: Callable[..., None],
    fault: int | None,
    says: str,
) -> None:
    impatient("OBEYED", "ROUND" if fault is None else "STOPPED")
    async with running(engine=child) as it:
        await it.until(lambda: it.app.conversation.panel().activity == "ready")
        await it.send("hang" if fault is None else "slowly long")
        await it.until(lambda: "0 1 2" in it.screen)
        if fault is not None and child.pid is not None:
            os.kill(child.pid, fault)
        await it.until(lambda: says in it.screen.replace("\n", " "))
        await it.pilot.press("escape")
        await works(it)
        kept = it.app.conversation.turns[1].text
        assert kept == "".join(f"{number} " for number in range(len(kept.split())))
        assert len(kept.split()) >= 3
