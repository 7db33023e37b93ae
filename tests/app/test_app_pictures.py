"""How the main states of the app look, over a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from scripted import Script, ScriptedEngine, plain, said
from textual import constants
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from macspec.app.app import MacspecApp
from macspec.app.chat import introduction, picker
from macspec.app.chat.background import ModelScan
from macspec.app.chat.conversation import Conversation
from macspec.app.keys import Keys
from macspec.app.panel.panelstate import PanelState
from macspec.app.screens.compare import CompareScreen
from macspec.config.effective import load
from macspec.models.machine import GIB
from macspec.models.scan import FoundModel, OpenedModel, PairFit
from macspec.store import Store
from macspec.worker import PairChoice

WIDE, USUAL, NARROW = (120, 36), (80, 24), (60, 20)

LIGHT = """\
White light from the sun holds **every colour**. A raindrop splits it:

1. The light bends as it *enters* the drop, blue a little more than red.
2. It bounces off the back of the drop.
3. It bends again as it leaves, and now the colours go apart.

You see red above and violet below, since each drop sends you only one colour.
"""

CODE = """\
Here is the angle in Python:

```python
def rainbow(refraction: float) -> float:
    \"\"\"Angle of the bow in degrees.\"\"\"
    inside = asin(sqrt((4 - refraction**2) / 3) / refraction)
    return degrees(4 * inside - 2 * asin(refraction * sin(inside)))
```

For red light it gives about 42 degrees.
"""

TARGET, DRAFT = "mlx-community/Qwen3-8B-4bit", "mlx-community/Qwen3-0.6B-4bit"

Scene = Callable[["Picture"], Awaitable[None]]


class Picture:
    """An app that is brought into the state that a picture shows."""

    def __init__(self, folder: Path, *replies: Any) -> None:
        effective = load(folder / "config.toml", {})
        self.engine = ScriptedEngine(*replies)
        self.store = Store(None)
        self.conversation = Conversation(self.engine, self.store, effective.config)
        choice = PairChoice(TARGET, DRAFT)
        self.app = MacspecApp(self.conversation, effective, Keys({}), [choice])
        self.pilot: Pilot[None] | None = None

    async def until(self, true: Callable[[], object]) -> None:
        assert self.pilot is not None
        async with asyncio.timeout(60):
            while not true():
                await self.pilot.pause(0.01)
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        assert self.pilot is not None
        await self.pilot.press(*keys)

    async def send(self, text: str) -> None:
        """Send a line; nothing is answered yet."""
        before = len(self.engine.requests)
        self.app.main.prompt.load(text)
        await self.press("enter")
        await self.until(lambda: len(self.engine.requests) > before)

    async def ask(self, text: str) -> None:
        """Send a line, and have all of the answer."""
        await self.send(text)
        self.engine.play_all()
        await self.until(lambda: not self.conversation.busy)

    async def play(self, rounds: int) -> None:
        """Have so many rounds of an answer, on the screen too."""
        self.engine.play(rounds)
        assert self.engine._playing is not None
        said = "".join(self.engine._playing.text)
        live = self.app.main.transcript._live
        assert live is not None
        await self.until(lambda: live.answer.text == said)
        assert self.conversation.busy

    async def still(self) -> None:
        """Have nothing on the screen that only time brings or takes away."""
        for screen in self.app.screen_stack:
            for typed in screen.query("*").results():
                if isinstance(typed, (Input, TextArea)):
                    typed.cursor_blink = False
                    typed._cursor_visible = True
                    typed.refresh()
        self.app.main.key_line.clear_notice()
        # Which numbers stand still depends on when they were looked at.
        self.app.main.panel.state = PanelState()
        self.app.main.summary.state = PanelState()
        self.app.show_state()
        await self.until(lambda: True)


async def empty(it: Picture) -> None:
    pass


async def streaming(it: Picture) -> None:
    """Two answers, the second one under way and tinted."""
    await it.ask("How does a rainbow form?")
    await it.press("ctrl+t")
    await it.send("Show me the angle as code.")
    await it.play(14)


async def tuned(it: Picture) -> None:
    """Settings changed in mid-reply, the dials in focus, and speculation parked."""
    await it.send("How does a rainbow form?")
    await it.play(40)
    await it.app.conversation.setup.tune(depth=2)
    await it.play(len(said(f"{ESSAY}\n{ESSAY}")) - 40)
    await it.app.conversation.setup.tune(method="off")
    await it.play(8)
    it.app.do("tuning")
    await it.until(lambda: it.app.main.sliders.has_focus)
    await it.press("down")


async def short(it: Picture) -> None:
    await it.ask("How does a rainbow form?")


async def compared(it: Picture) -> None:
    """A/B of the last prompt, to its end."""
    await it.ask("How does a rainbow form?")
    it.app.do("compare")
    await it.until(lambda: isinstance(it.app.screen, CompareScreen))
    screen = it.app.screen
    assert isinstance(screen, CompareScreen)
    for _ in range(4):
        await it.until(lambda: it.engine.playing)
        it.engine.play_all()
        await it.until(lambda: not it.engine.playing)
    await it.until(lambda: screen.finished)


async def switcher(it: Picture) -> None:
    it.app.do("models")
    await it.until(lambda: not it.app.main.is_active)
    await it.until(lambda: it.app.commands.loading.picker.scan.complete)
    await it.until(lambda: "fits" in text(it.app))


async def whole(it: Picture) -> None:
    """All of the panel on a screen that usually has its line only."""
    await it.ask("How does a rainbow form?")
    await it.press("ctrl+b")
    await it.until(lambda: it.app.main.has_class("-whole"))


ESSAY = LIGHT + "\n" + CODE
PARTED = [
    *said(f"{ESSAY}\n{ESSAY}", seconds=0.08),
    *plain("\nFor violet light it gives 40 degrees, and for blue light something between.", 0.2),
]

AGAIN = [Script(plain(LIGHT)), LIGHT, LIGHT, Script(plain(LIGHT))]

SCENES: dict[str, tuple[Scene, tuple[int, int], Sequence[Any], str]] = {
    "empty": (empty, WIDE, [LIGHT], "macspec-dark"),
    "streaming": (streaming, WIDE, [Script(said(LIGHT, seconds=0.1)), CODE], "macspec-dark"),
    "tuned": (tuned, WIDE, [Script(PARTED)], "macspec-dark"),
    "light": (streaming, WIDE, [LIGHT, CODE], "macspec-light"),
    "usual": (short, USUAL, [LIGHT], "macspec-dark"),
    "usual-panel": (whole, USUAL, [LIGHT], "macspec-dark"),
    "narrow": (short, NARROW, [LIGHT], "macspec-dark"),
    "compare": (compared, WIDE, [LIGHT, *AGAIN], "macspec-dark"),
    "switcher": (switcher, WIDE, [LIGHT], "macspec-dark"),
}


def text(app: MacspecApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def scanned(self: ModelScan, folders: Sequence[str]) -> AsyncIterator[None]:
    """What lies on the machine of the pictures."""
    other = "mlx-community/gemma-3-1b-it-4bit"
    sizes = {TARGET: 4.6, DRAFT: 0.35, other: 0.8}
    self.limit = round(21.3 * GIB)
    self.found = {
        name: FoundModel(name, f"/models/{name}", round(size * 1e9), None, "1")
        for name, size in sizes.items()
    }
    self.opened = {
        name: OpenedModel(name, round(size * 1.7e9), 32768, round(size * 1.2e9), 8192, True)
        for name, size in sizes.items()
    }
    vocabulary = "its vocabulary is another one: 262,144 tokens, not 151,936"
    self.fits = {
        (TARGET, DRAFT): PairFit(TARGET, DRAFT, None, round(6.1 * GIB), 8192, True),
        (TARGET, other): PairFit(TARGET, other, vocabulary, None, 8192, None),
    }
    self.listed = self.complete = True
    yield


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same machine and terminal everywhere."""
    monkeypatch.setattr(constants, "COLOR_SYSTEM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(introduction, "working_set", lambda: round(21.3 * GIB))
    for module in (introduction, picker):
        monkeypatch.setattr(module, "unified_memory", lambda: 32 * GIB)
    monkeypatch.setattr(ModelScan, "run", scanned)


@pytest.mark.parametrize("name", list(SCENES))
def test_app(name: str, snap_compare: Callable[..., bool], tmp_path: Path) -> None:
    scene, size, replies, theme = SCENES[name]
    it = Picture(tmp_path, *replies)

    async def play(pilot: Pilot[None]) -> None:
        it.pilot = pilot
        await it.until(lambda: it.conversation.panel().activity == "ready")
        it.app.theme = theme
        await scene(it)
        await it.still()

    assert snap_compare(it.app, terminal_size=size, run_before=play)
    it.store.close()
