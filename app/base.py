"""What every part of the app has at hand."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.driver import Driver

from macspec.config import Effective
from macspec.errors import MacspecError
from macspec.worker import PairChoice

from . import themes
from .actions import Situation
from .chat.conversation import Conversation
from .faults import unforeseen
from .keys import Keys
from .remembering import remember
from .screens.main import Main


class Base(App[None], inherit_bindings=False):
    """The state of the app, and how its parts reach the widgets.

    Args:
        conversation: the conversation.
        settings: what holds at the start.
        keys: which keys do what.
        choice: the pair to load at first.
        fallback: the pair to load where that fails; None: none.
        farewell: lets go of the engine; called once, on a thread of its own, as soon as the user
            wants to leave.
        driver: of the terminal; None: Textual's own.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", show=False, priority=True, system=True)
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        conversation: Conversation,
        settings: Effective,
        keys: Keys,
        choice: PairChoice,
        *,
        fallback: PairChoice | None = None,
        farewell: Callable[[], None] = lambda: None,
        driver: type[Driver] | None = None,
    ) -> None:
        self.conversation, self.settings, self.keys, self.choice = (
            conversation,
            settings,
            keys,
            choice,
        )
        self.fallback = fallback
        self.farewell = threading.Thread(target=farewell, name="farewell")
        app = settings.config.app
        self.main = Main(keys, app.send, panel=app.panel)
        self._writing = asyncio.Lock()
        self.chosen: int | None = None
        """The turn of the transcript that the user went to."""
        super().__init__(driver_class=driver, ansi_color=themes.ansi_color(os.environ))

    def get_default_screen(self) -> Main:
        return self.main

    @property
    def alone(self) -> bool:
        """Whether nothing lies over the main screen."""
        return len(self.screen_stack) == 1

    def situation(self) -> Situation:
        """What is going on."""
        turns = self.conversation.turns
        return Situation(
            busy=self.conversation.busy,
            loading=self.conversation.panel().activity == "loading",
            turns=bool(turns),
            replied=any(turn.role == "assistant" for turn in turns),
            chat=self.conversation.chat is not None,
        )

    def say(self, line: str, severity: str = "information", *, also: bool = False) -> None:
        """Say a line to the user, where the keys are named otherwise.

        Args:
            also: what is said already stays.
        """
        if self.main.there:
            self.main.key_line.tell(line, severity, also=also)

    def begin(self, work: Coroutine[Any, Any, None], group: str) -> None:
        """Have something done beside; what goes wrong is said in a line."""
        self.run_worker(self._guarded(work), group=group, exit_on_error=True)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except MacspecError as error:
            self.say(str(error), "error")
        except Exception as error:
            if os.environ.get("MACSPEC_DEBUG", "0") not in ("", "0"):
                raise
            self.say(unforeseen(error), "error")

    def remember(self, changes: Mapping[str, Any]) -> None:
        """Keep choices in the settings file, by key; a failure is said, and nothing else."""
        self.begin(self._remember(changes), "remember")

    async def _remember(self, changes: Mapping[str, Any]) -> None:
        async with self._writing:
            trouble = await remember(self.settings, changes)
        if trouble is not None:
            self.say(trouble, "warning")

    def show_state(self) -> None:
        """Show what is not in the transcript: title, numbers, keys."""
        raise NotImplementedError

    async def show_turns(self) -> None:
        """Show the conversation as it stands."""
        raise NotImplementedError
