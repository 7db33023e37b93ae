"""How the screen looks: what the user changes there is kept in the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from textual.app import App

from macspec.config.effective import ENVIRONMENT, Effective
from macspec.config.file import change_file
from macspec.config.schema import SETTINGS
from macspec.errors import BadOptionError

from . import themes
from .keys import Keys
from .screens.main import Main


class Looks:
    """The commands that change how the screen looks.

    Args:
        status: shows a line for a moment.
    """

    def __init__(
        self,
        app: App[None],
        main: Main,
        keys: Keys,
        settings: Effective,
        status: Callable[..., None],
    ) -> None:
        self._app, self._main, self._keys = app, main, keys
        self._settings, self._status = settings, status
        self._writing = asyncio.Lock()

    def show(self) -> None:
        """Have the screen look as the settings say."""
        app, transcript = self._settings.config.app, self._main.transcript
        if self._app.theme != app.theme:
            self._status(f"there is no theme {app.theme}; /theme lists them", "warning")
        transcript.tint, transcript.reasoning_open = app.tint, app.reasoning

    async def do_panel(self, argument: str) -> None:
        """Show or hide the panel; on a narrow screen its line, then all of it, then nothing."""
        main = self._main
        hidden, whole = main.has_class("-no-panel"), main.has_class("-whole")
        line = not main.has_class("-wide") and not whole
        main.show_panel(not hidden and line, hidden=not hidden and not line)
        if hidden and line:
            self._status(f"status line only; {self._keys.shown('panel')} again for the full panel")
        else:
            self._status("panel shown" if hidden or line else "panel hidden")
        self._remember("app.panel", hidden or line)

    async def do_tint(self, argument: str) -> None:
        transcript = self._main.transcript
        transcript.tint = not transcript.tint
        self._status("highlighting drafted tokens" if transcript.tint else "highlighting is off")
        self._remember("app.tint", transcript.tint)

    async def do_reasoning(self, argument: str) -> None:
        transcript = self._main.transcript
        transcript.reasoning_open = not transcript.reasoning_open
        self._status(f"reasoning {'shown' if transcript.reasoning_open else 'folded'}")
        self._remember("app.reasoning", transcript.reasoning_open)

    async def do_theme(self, argument: str) -> None:
        names = themes.names(self._app)
        name = argument or names[(names.index(self._app.theme) + 1) % len(names)]
        if name not in names:
            raise BadOptionError(f"there is no theme {argument}; /theme and a space list them")
        self._app.theme = name
        self._status(f"theme {name}")
        self._remember("app.theme", name)

    def _remember(self, key: str, value: object) -> None:
        """Keep a choice in the settings file. What the environment sets is left alone, since it
        would win at the next start."""
        if self._settings.origins[key].rank < ENVIRONMENT:
            self._app.run_worker(self._write(key, value), group="remember")

    async def _write(self, key: str, value: object) -> None:
        async with self._writing:
            try:
                await asyncio.to_thread(change_file, self._settings.path, SETTINGS[key], value)
            except BadOptionError as error:
                self._status(f"not saved: {error}", "warning")
