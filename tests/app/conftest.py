"""The whole app over a scripted engine, without a terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import textual._wait
from scripted import ScriptedEngine
from textual.pilot import Pilot

from macspec.app.app import MacspecApp
from macspec.app.chat.conversation import Conversation
from macspec.app.chat.titles import Titles
from macspec.app.keys import Keys
from macspec.config.effective import load
from macspec.store import Store
from macspec.worker import PairChoice

PATIENCE_S = 60.0
"""What nothing takes even on a busy machine."""


@pytest.fixture(autouse=True)
def untitled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model names no conversation meanwhile: scripted replies are for what a test asks."""
    monkeypatch.setattr(Titles, "wanted", lambda *_: False)


@dataclass
class Driven:
    """An app that runs, and what drives it."""

    app: MacspecApp
    pilot: Pilot[None]
    engine: ScriptedEngine
    store: Store

    async def until(self, seen: Callable[[], Any]) -> None:
        """Wait for a condition, and for what the app still does then."""
        async with asyncio.timeout(PATIENCE_S):
            while not seen():
                await self.pilot.pause(0.01)
            await textual._wait.wait_for_idle(0, 0)

    async def send(self, text: str) -> None:
        """Write a line and send it."""
        self.app.main.prompt.load(text)
        await self.pilot.press("enter")
        await self.pilot.pause()

    async def ask(self, text: str) -> None:
        """Write a line, send it, and wait for all of the reply."""
        before = len(self.engine.requests)
        await self.send(text)
        await self.until(lambda: len(self.engine.requests) > before)
        self.engine.play_all()
        await self.until(lambda: not self.app.conversation.busy)
        await self.pilot.pause()

    @property
    def status(self) -> str:
        """What the last line says."""
        return self.app.main.key_line.notice

    @property
    def screen(self) -> str:
        """What the screen shows."""
        lines = self.app.screen._compositor.render_strips()
        return "\n".join(line.text.rstrip() for line in lines)


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    """A user who has never run it, and whose terminal says nothing about its colours.

    The model names no conversation: when it is idle depends on the machine.
    """
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text("[history]\ntitles = false\n")
    own = {name: value for name, value in os.environ.items() if not name.startswith("MACSPEC_")}
    for name in ("COLORTERM", "COLUMNS", "LINES", "NO_COLOR", "SSH_CONNECTION", "TMUX"):
        own.pop(name, None)
    return {**own, "MACSPEC_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """The file that the app's settings are from."""
    return tmp_path / "config.toml"


@pytest.fixture
def running(tmp_path: Path, settings: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs the app: ``async with running("a reply") as it``. What it says stays."""
    monkeypatch.setattr("macspec.app.widgets.chrome.STAYS", 3600.0)

    @asynccontextmanager
    async def run(
        *replies: Any,
        engine: ScriptedEngine | None = None,
        size: tuple[int, int] = (120, 36),
        chat: int | None = None,
        **options: Any,
    ) -> AsyncIterator[Driven]:
        effective = load(settings, {})
        store = Store(tmp_path / "chats.db")
        engine = engine or ScriptedEngine(*replies)
        conversation = Conversation(engine, store, effective.config)
        if chat is not None:
            conversation.open(chat)
        keys = Keys(effective.config.keys)
        app = MacspecApp(
            conversation, effective, keys, options.pop("pairs", [PairChoice()]), **options
        )
        async with app.run_test(size=size) as pilot:
            it = Driven(app, pilot, engine, store)
            await it.until(
                lambda: app.conversation.panel().activity in ("ready", "loading", "no model")
            )
            await it.until(lambda: app.main.has_class("-empty") or app.conversation.turns)
            await pilot.pause()
            yield it
        store.close()

    return run
