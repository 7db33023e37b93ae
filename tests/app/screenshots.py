"""Make README's pictures of the app, with the real engine and the built-in pair.

    python tests/app/screenshots.py [FOLDER]

Text, numbers and speeds are those of this machine. Nothing of yours is read or written but the
pictures: settings and conversations are in a temporary folder.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from macspec.app.app import MacspecApp

PICTURES = Path(__file__).resolve().parents[2] / "assets" / "screenshots"

QUESTIONS = ("What can you do?", "How does the draft model help?", "Tell me a story.")

SETTINGS = {"MACSPEC_SAMPLING_SEED": "7", "TEXTUAL_COLOR_SYSTEM": "truecolor"}
"""The environment, so that pictures differ in what the machine does and in nothing else."""

PATIENCE_S = 240.0
"""After this long something has gone wrong."""

FONT = "Menlo, Consolas, 'DejaVu Sans Mono', monospace"
"""In place of one that a viewer would fetch from the network."""


@dataclass
class Driven:
    """The app, and what presses its keys."""

    app: MacspecApp
    pilot: Pilot[None]

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for a condition, and for the screen to show it."""
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                await self.pilot.pause(0.02)
        await self.pilot.pause(0.3)

    @property
    def idle(self) -> bool:
        """Whether no reply streams."""
        return not self.app.conversation.busy

    async def ask(self, question: str) -> None:
        """Type a question and wait for the answer."""
        before = len(self.app.conversation.turns)
        self.app.main.prompt.load(question)
        await self.pilot.press("enter")
        await self.until(lambda: len(self.app.conversation.turns) >= before + 2 and self.idle)


async def chat(it: Driven) -> None:
    """A conversation with its tokens tinted; the story again at several depths."""
    await it.pilot.press("ctrl+t")
    for question in QUESTIONS:
        await it.ask(question)
    for depth in (2, 6, "auto"):
        await it.app.conversation.setup.tune(depth=depth)
        siblings = it.app.conversation.turns[-1].siblings
        it.app.do("regenerate")
        await it.until(lambda: it.app.conversation.turns[-1].siblings > siblings and it.idle)  # noqa: B023


async def compare(it: Driven) -> None:
    """A/B of the last prompt."""
    from macspec.app.screens.compare import CompareScreen

    await it.ask(QUESTIONS[-1])
    it.app.do("compare")
    await it.until(lambda: isinstance(it.app.screen, CompareScreen))
    screen = it.app.screen
    assert isinstance(screen, CompareScreen)
    await it.until(lambda: screen.finished)


async def models(it: Driven) -> None:
    """What there is to choose from."""
    it.app.do("models")
    await it.until(lambda: not it.app.main.is_active)
    await it.until(lambda: it.app.commands.loading.picker.scan.complete)


async def narrow(it: Driven) -> None:
    """A narrow terminal, with the panel in one line."""
    await it.ask(QUESTIONS[1])


Scene = Callable[[Driven], Awaitable[None]]

SCENES: dict[str, tuple[Scene, tuple[int, int], str]] = {
    "chat": (chat, (120, 36), "macspec-dark"),
    "light": (chat, (120, 36), "macspec-light"),
    "compare": (compare, (120, 36), "macspec-dark"),
    "models": (models, (120, 36), "macspec-dark"),
    "narrow": (narrow, (60, 20), "macspec-dark"),
}


async def take(name: str, file: Path) -> None:
    """Play a scene on a new engine, with a store of its own, and save its picture."""
    from macspec.app.app import MacspecApp
    from macspec.app.chat.conversation import Conversation
    from macspec.app.keys import Keys
    from macspec.config.effective import load
    from macspec.power import Meter, choose
    from macspec.store import Store
    from macspec.worker import PairChoice, ProcessEngine

    scene, size, theme = SCENES[name]
    engine = ProcessEngine()
    engine.start()
    effective = load()
    meter = Meter(partial(choose, effective.config.power.source))
    store = Store(None)
    conversation = Conversation(engine, store, effective.config, meter=meter)
    app = MacspecApp(conversation, effective, Keys({}), [PairChoice()])
    try:
        async with app.run_test(size=size) as pilot:
            it = Driven(app, pilot)
            app.theme = theme
            await it.until(lambda: conversation.panel().activity == "ready")
            await scene(it)
            app.main.key_line.clear_notice()
            app.show_state()
            await pilot.pause()
            file.write_text(picture(app), encoding="utf-8")
    finally:
        engine.close(1.0)
        meter.stop()
        store.close()


def picture(app: MacspecApp) -> str:
    """The screen as SVG that needs nothing from elsewhere."""
    svg = re.sub(r"@font-face\s*\{[^}]*\}", "", app.export_screenshot(title="macspec"))
    # Some viewers take blanks from the ends of a text.
    svg = svg.replace("<svg ", '<svg xml:space="preserve" ', 1)
    return re.sub(r"font-family: [^;]*;", f"font-family: {FONT};", svg)


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("folder", nargs="?", type=Path, default=PICTURES, help="where pictures go")
    parser.add_argument("--only", choices=list(SCENES), action="append", help="only this one")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    os.environ.pop("NO_COLOR", None)
    os.environ.update(SETTINGS)
    for name in options.only or SCENES:
        file = options.folder / f"{name}.svg"
        with tempfile.TemporaryDirectory(prefix="macspec-pictures-") as home:
            os.environ["MACSPEC_HOME"] = home
            asyncio.run(take(name, file))
        print(file)


if __name__ == "__main__":
    main()
