"""How things look, and what is shown about macspec itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from macspec.errors import BadOptionError

from . import themes
from .actions import Choice
from .base import Base
from .chat.picker import proposal


class Viewing(Base):
    """Panel, tint, theme, editor, help."""

    def paint(self) -> None:
        """Take the theme that is chosen in the settings."""
        themes.register(self)
        self.theme = themes.known(self.settings.config.app.theme, self)

    def show_choices(self) -> None:
        """Take what else is chosen there."""
        app = self.settings.config.app
        if self.theme != app.theme:
            self.say(f"there is no theme {app.theme}; /theme lists them", "warning")
        self.main.transcript.tint = app.tint
        self.main.transcript.reasoning_open = app.reasoning

    async def do_panel(self, argument: str) -> None:
        """Show or hide the panel; on a narrow screen its line, then all of it, then nothing."""
        main = self.main
        hidden, whole = main.has_class("-no-panel"), main.has_class("-whole")
        line = not main.has_class("-wide") and not whole
        main.set_class(not hidden and not line, "-no-panel")
        main.set_class(not hidden and line, "-whole")
        self.show_state()
        if hidden:
            self.say(
                "the panel's line is shown; once more, and it is all there"
                if line
                else "the panel is shown"
            )
        else:
            self.say("the panel is shown" if line else "the panel is hidden")
        self.remember({"app.panel": hidden or line})

    async def do_tint(self, argument: str) -> None:
        transcript = self.main.transcript
        transcript.tint = not transcript.tint
        self.say(
            "drafted tokens are marked, by drafter" if transcript.tint else "tokens are not marked"
        )
        self.remember({"app.tint": transcript.tint})

    async def do_reasoning(self, argument: str) -> None:
        transcript = self.main.transcript
        transcript.reasoning_open = not transcript.reasoning_open
        self.say(f"reasoning is {'open' if transcript.reasoning_open else 'folded'}")
        self.remember({"app.reasoning": transcript.reasoning_open})

    async def do_follow(self, argument: str) -> None:
        self.main.transcript.follow()

    def themes(self) -> Sequence[Choice]:
        """Themes to choose from."""
        return [(name, "") for name in themes.names(self)]

    async def do_theme(self, argument: str) -> None:
        names = themes.names(self)
        name = argument or names[(names.index(self.theme) + 1) % len(names)]
        if name not in names:
            raise BadOptionError(f"there is no theme {argument}; /theme and a space list them")
        self.theme = name
        self.say(f"theme {name}")
        self.remember({"app.theme": name})

    async def do_editor(self, argument: str) -> None:
        self.main.prompt.open_editor()

    async def do_palette(self, argument: str) -> None:
        from .palette import palette

        self.push_screen(palette())

    async def do_help(self, argument: str) -> None:
        from .screens.help import Help

        self.push_screen(Help(self.keys))

    async def do_about(self, argument: str) -> None:
        from .screens.help import About

        self.push_screen(About(self.keys, proposal()))

    async def do_report(self, argument: str) -> None:
        from macspec.diagnostics import report_file

        path = await asyncio.to_thread(report_file, self.choice.target, self.choice.draft)
        self.say(f"the report is in {path}: read it before you send it")
