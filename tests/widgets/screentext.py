"""What a screen shows, as lines of text."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import textual._wait
from textual.app import App
from textual.pilot import Pilot

PATIENCE_S = 60.0
"""What nothing takes even on a busy machine: after it a condition is given up."""


class Host(App[None]):
    """An app with nothing of its own, under the screen that is tested."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[Any] = []
        """What the screens left with, in order."""

    async def ask(self, screen: Any) -> None:
        """Push a screen and keep its result."""
        await self.push_screen(screen, self.results.append)


def seen(app: App[Any]) -> str:
    """The whole screen; lines have no blanks at their end."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


async def until(pilot: Pilot[Any], true: Callable[[], object]) -> None:
    """Wait for a condition, and for what the app still does then."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            break
        await pilot.pause(0.01)
    else:
        await textual._wait.wait_for_idle(0, 0)
        return
    raise AssertionError(f"it did not happen; the screen:\n{seen(pilot.app)}")
