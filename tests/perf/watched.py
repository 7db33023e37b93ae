"""The app as it is, before an engine that keeps to a pace, and what it takes of this machine.

``python tests/perf/watched.py FILE`` is ``macspec chat`` with that engine. Whenever it gets SIGUSR1
it adds a line of JSON to FILE: what it took since the last one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path

from macspec.app.app import MacspecApp
from macspec.app.chat.conversation import Conversation
from macspec.app.driver import ScreenDriver
from macspec.app.keys import Keys
from macspec.app.start import GRACE
from macspec.config.effective import load
from macspec.power import Meter, choose, remembered_idle
from macspec.store import Store, store_path
from macspec.worker import PairChoice, ProcessEngine

ENGINE = (sys.executable, str(Path(__file__).with_name("paced.py")))

TICK = 0.004
"""Seconds between two looks at whether the event loop comes in time."""


@dataclass
class Lateness:
    """How long the event loop kept a timer waiting."""

    worst: float = 0.0
    """Seconds."""
    busy: float = 0.0
    """The most of this process's own time in such a wait: what is left of it on a quiet machine."""

    async def watch(self) -> None:
        """Look on until it is cancelled."""
        while True:
            wall, core = time.perf_counter(), time.process_time()
            await asyncio.sleep(TICK)
            self.worst = max(self.worst, time.perf_counter() - wall - TICK)
            self.busy = max(self.busy, time.process_time() - core)


class Watched(MacspecApp):
    """The app, which says what it takes when it is asked to.

    Set ``file`` before it runs; ``watching``: its event loop is looked at, which takes a little
    by itself.
    """

    CSS_PATH = Path(str(files("macspec.app"))) / "app.tcss"

    file: Path
    watching = False

    def on_mount(self) -> None:
        self.lateness = Lateness()
        if self.watching:
            self.watch_loop = asyncio.create_task(self.lateness.watch())
        self.wall, self.core = time.perf_counter(), time.process_time()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._say)

    def _say(self) -> None:
        wall, core = time.perf_counter(), time.process_time()
        look = {
            "wall": wall - self.wall,
            "core": core - self.core,
            "worst": self.lateness.worst,
            "busy": self.lateness.busy,
            "writing": self.conversation.busy,
        }
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(look) + "\n")
        self.lateness.worst = self.lateness.busy = 0.0
        self.wall, self.core = wall, core


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="where to write what it took")
    parser.add_argument("--chat", type=int, help="the conversation to open")
    parser.add_argument("--watch", action="store_true", help="look at the event loop, too")
    options = parser.parse_args()
    settings = load()
    config = settings.config
    engine = ProcessEngine(program=ENGINE)
    engine.start()
    meter = Meter(lambda: choose(config.power.source), idle=remembered_idle())
    conversation = Conversation(engine, Store(store_path()), config, meter=meter)
    if options.chat is not None:
        conversation.open(options.chat)
    app = Watched(
        conversation,
        replace(settings, config=config),
        Keys(config.keys),
        [PairChoice()],
        farewell=partial(engine.close, GRACE),
        driver=ScreenDriver,
    )
    app.file, app.watching = options.file, options.watch
    try:
        app.run()
    finally:
        app.leaving.say_farewell(wait=True)


if __name__ == "__main__":
    main()
