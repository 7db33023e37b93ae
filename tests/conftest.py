"""What every test may use."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import textual._wait
from hypothesis import settings

# How long a generated case takes depends on the machine. All else is as Hypothesis has it.
settings.register_profile("steady", settings(), deadline=None)
settings.load_profile("steady")

# Nothing that a test teaches macspec stays on the machine, and nothing on it changes a test.
HOME = tempfile.TemporaryDirectory(prefix="macspec-tests-")
os.environ["MACSPEC_HOME"] = HOME.name

# Hundreds of processes are started: each would compile macspec anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell that starts the tests in the background, or nohup, has whatever they start ignore these.
for signum, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(signum) is signal.SIG_IGN:
        signal.signal(signum, handler)


wait_for_idle = textual._wait.wait_for_idle


async def settled(*limits: float) -> None:
    """Textual takes an app that spends no time for idle; on a busy machine it may have got none."""
    await wait_for_idle(*limits)
    for _ in range(30):
        await asyncio.sleep(0)


textual._wait.wait_for_idle = settled


@pytest.fixture(autouse=True)
def untried(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Model folders are loaded at once, except where a test is about trying them first."""
    if "tried" not in request.fixturenames:
        check = "macspec.models.trial.Trial.check"
        monkeypatch.setattr(check, lambda *arguments, **settings: None)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Shortens limits of the watch over an engine to a tenth: ``impatient("OBEYED", "ROUND")``.

    Only those that a test waits for: on a busy machine a sound engine may exceed them too.
    """

    def shorten(*names: str) -> None:
        from macspec.worker import process, watch

        for name in names:
            monkeypatch.setattr(watch, name, getattr(watch, name) / 10)
        monkeypatch.setattr(process, "TICK", 0.05)

    return shorten


ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of models, prompts and texts beside the repository, where there is one."""
    folder = ROOT.parent / "shared"
    if not (folder / "data").is_dir():
        pytest.skip("needs ../shared")
    return folder


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """More than there are cores: many tests wait for a terminal, a pipe or a clock, and of the
    slow ones most of the time."""
    cores = os.cpu_count() or 1
    return 2 * cores + 1 if config.option.markexpr == "slow" else cores + 2


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each worker begins with its part of the long tests: none is left for the end."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers == 1:
        return
    long = [item for item in items if item.get_closest_marker("long")]
    rest = (item for item in items if not item.get_closest_marker("long"))
    ordered: list[pytest.Item] = []
    for worker in range(workers):  # Their shares are of one size, each a piece of this list.
        share = (len(items) - len(ordered)) // (workers - worker)
        first = long[worker::workers]
        ordered += [*first, *islice(rest, max(share - len(first), 0))]
    items[:] = [*ordered, *rest]
