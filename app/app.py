"""The app: what is shown, and which part does what."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.timer import Timer

from . import message as files
from .actions import BY_ID, Choice
from .chat.chatlist import shortened, title_of
from .chat.picker import proposal
from .chat.turns import Changed, ChatNotice, Update
from .conversing import Conversing
from .keys import hints
from .leaving import Leaving
from .modelling import Modelling
from .prompt.prompt import Prompt
from .screens.main import Main
from .slash import Command, Completion, continuations
from .speculating import Speculating
from .turning import Turning
from .viewing import Viewing

PERIOD = 0.25
"""Seconds between two looks at the engine's numbers."""

STARTED = 3.0
"""Seconds after which everything is imported and shown."""

UNSENT = 1.0
"""Seconds after the last key at which the prompt is saved."""


REPEATED = ("deeper", "shallower", "older", "newer", "method", "rule", "theme")
"""Actions whose key may be held down: each waits for the one before."""


class MacspecApp(Turning, Conversing, Modelling, Speculating, Viewing, Leaving):
    """A chat on the terminal. Its parts are in the modules of its base classes."""

    TITLE = "macspec"
    CSS_PATH = "app.tcss"
    ESCAPE_TO_MINIMIZE: ClassVar[bool] = False

    _unsent: Timer | None = None

    def on_mount(self) -> None:
        self._doing: set[str] = set()
        self._turns: dict[str, asyncio.Lock] = {}
        self.heed_signals()
        self.paint()

    @on(Main.Made)
    def _made(self, event: Main.Made) -> None:
        event.stop()
        self.show_choices()
        self.main.prompt.complete = self._completions
        self.conversation.listener = self._happened
        self.begin(self._open(), "open")
        self.set_interval(PERIOD, self.show_state)
        # What is there by now stays: no later collection has to look at it while a reply streams.
        if not self.is_headless:
            self.set_timer(STARTED, gc.freeze)

    def _happened(self, update: Update) -> None:
        """What is told outside of a reply."""
        match update:
            case Changed(turn):
                self.main.transcript.update_turn(turn)
            case ChatNotice(line, severity):
                self.told(line, severity)

    async def _open(self) -> None:
        """Show what there was, or what this is."""
        prompt = self.main.prompt
        prompt.set_history(self.conversation.sent)
        if not prompt.value:
            prompt.load(self.conversation.unsent)
        if self.conversation.first_run:
            self.main.welcome.show_card(self.keys, proposal())
        else:
            self.main.welcome.show_keys(self.keys)
        await self.show_turns()
        if self.conversation.store.trouble is not None:
            self.told(self.conversation.store.trouble, "warning")
        await self.load_first()

    # Actions.

    def do(self, id: str, argument: str = "") -> None:
        """Carry out an action, unless it makes no sense now; then say why."""
        refusal = BY_ID[id].refusal(self.situation())
        if refusal is not None:
            self.say(refusal, "warning")
        elif id in REPEATED or id not in self._doing:
            self._doing.add(id)
            self.begin(self._do(id, argument), "do")

    async def _do(self, id: str, argument: str) -> None:
        try:
            async with self._turns.setdefault(id, asyncio.Lock()):
                await getattr(self, f"do_{id}")(argument)
        finally:
            self._doing.discard(id)
            self.show_state()

    def action_do(self, id: str) -> None:
        """What keys are bound to. Esc stops a reply, or a switch to another pair; the first load
        it leaves alone, and goes back to the prompt."""
        first = self.conversation.choice is None and not self.conversation.busy
        if id == "stop" and (first or not self.situation().working):
            self.main.prompt.focus()
        else:
            self.do(id)

    def do_command(self, command: Command) -> None:
        self.do(command.action.id, command.argument)

    @on(Prompt.Asked)
    def _help_asked_for(self, event: Prompt.Asked) -> None:
        event.stop()
        self.do("help")

    # What can be completed.

    def chats(self) -> Sequence[Choice]:
        """Conversations to choose from."""
        return [(str(chat.id), title_of(chat)) for chat in self.conversation.store.chats(20)]

    def _completions(self, typed: str) -> Sequence[Completion]:
        return continuations(typed, self) or files.completions(typed)

    # What is shown four times a second, and at once where something changed.

    def show_state(self) -> None:
        if not self.is_running or not self.main.there:
            return
        main, state = self.main, self.conversation.panel()
        chat = self.conversation.chat
        title = "New conversation" if chat is None else shortened(title_of(chat), 60)
        main.title_line.show(title, state)
        if not main.has_class("-no-panel"):
            (main.panel if main.beside else main.summary).show(state)
        main.tuning.show(state)
        main.key_line.show(hints(self.keys, self.situation(), main.prompt.area.has_focus))

    @on(Prompt.Changed)
    def _typed(self) -> None:
        """Keep what is typed, a moment after the last key."""
        if self._unsent is not None:
            self._unsent.stop()
        self._unsent = self.set_timer(UNSENT, self._save_unsent)

    def _save_unsent(self) -> None:
        if self.main.there:
            self.conversation.save_unsent(self.main.prompt.unsent)
