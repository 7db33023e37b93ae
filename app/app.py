"""The app: what the screen shows, and what happens at its keys."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, ClassVar

from textual import on
from textual.app import App
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.events import TextSelected
from textual.widgets import Input, TextArea

from macspec.config.effective import Effective
from macspec.errors import BadOptionError, MacspecError
from macspec.events import Notice
from macspec.store import title_of
from macspec.worker import LoadProgress, PairChoice

from . import outside, themes
from .actions import BY_ID
from .chat.chatlist import pattern_of, shortened
from .chat.conversation import Conversation
from .chat.introduction import proposal
from .chat.turns import Update
from .commands import Commands
from .dialogs import Boxes
from .feed import Feed
from .keys import Keys, hints
from .leaving import Leaving, unforeseen
from .looks import Looks
from .panel.sliders import Tune
from .prompt.prompt import Prompt
from .screens.main import Main
from .sending import Sending
from .transcript.transcript import TurnChosen, VersionAsked

PERIOD = 0.25
"""Seconds between two updates of the numbers."""

STARTED = 3.0
"""Seconds after which everything is imported and shown."""

ELSEWHERE = 1.0
"""Seconds between two looks at what other windows do to the conversation."""

TWICE = 2.0
"""Seconds within which a second Ctrl+C leaves."""

REPEATED = ("deeper", "shallower", "older", "newer", "method", "rule", "theme")
"""Actions whose key may be held down: each waits for the one before."""


class MacspecApp(App[None], inherit_bindings=False):
    """A chat on the terminal; the view of commands that is a screen.

    Args:
        conversation: what is shown.
        settings: what is set at the start.
        pairs: those to load at the start: the first that can be loaded.
        farewell: lets go of the engine; called once, on a thread of its own, as soon as the user
            wants to leave.
        driver: of the terminal; None: Textual's own.
        trouble: what is wrong with the settings, in a line.
    """

    TITLE = "macspec"
    CSS_PATH = "app.tcss"
    ESCAPE_TO_MINIMIZE: ClassVar[bool] = False
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", show=False, priority=True, system=True)
    ]

    def __init__(
        self,
        conversation: Conversation,
        settings: Effective,
        keys: Keys,
        pairs: Sequence[PairChoice],
        *,
        farewell: Callable[[], None] = lambda: None,
        driver: type[Driver] | None = None,
        trouble: str = "",
    ) -> None:
        self.conversation, self.settings, self.keys = conversation, settings, keys
        app = settings.config.app
        self.main = Main(keys, app.send, panel=app.panel)
        self.feed = Feed(self.main, conversation, self.status, self.show_state)
        self.commands = Commands(self, pairs, lambda: [(name, "") for name in themes.names(self)])
        self.looks = Looks(self, self.main, keys, settings, self.status)
        self.sending = Sending(self)
        self.dialogs = Boxes(self, conversation, keys, settings.config, self.redraw)
        self.leaving = Leaving(self, conversation, lambda: self.main.prompt.unsent, farewell)
        self._trouble = trouble
        self.fault: str | None = None
        """What broke the app, in a line; None while nothing did."""
        self._doing: set[str] = set()
        self._one_by_one: dict[str, asyncio.Lock] = {}
        self._armed = float("-inf")
        # Without ansi_color, NO_COLOR would still use greys.
        super().__init__(driver_class=driver, ansi_color="NO_COLOR" in os.environ or None)

    def get_default_screen(self) -> Main:
        return self.main

    # The start and the end.

    def on_mount(self) -> None:
        self.leaving.heed_signals()
        themes.register(self)
        theme = self.settings.config.app.theme
        self.theme = theme if theme in self.available_themes else themes.DARK.name

    @on(Main.Made)
    def _made(self) -> None:
        transcript = self.main.transcript
        self.looks.show()
        self.main.prompt.popup.complete = self.commands.complete
        self.conversation.measured = transcript.update_turn
        self.begin(self._open(), "open")
        self.set_interval(PERIOD, self.show_state)
        self.set_interval(ELSEWHERE, self._look_elsewhere)
        # What is there by now stays: no later collection has to look at it while a reply streams.
        if not self.is_headless:
            self.set_timer(STARTED, gc.freeze)

    async def _open(self) -> None:
        """Show the conversation, or what macspec is; and load the first pair."""
        prompt = self.main.prompt
        prompt.set_history(self.conversation.sent)
        if not prompt.value:
            prompt.load(self.conversation.unsent)
        await self.redraw()
        if self.conversation.first_run:
            self.main.welcome.show_card(self.keys, proposal())
        for trouble in filter(None, (self.conversation.store.trouble, self._trouble)):
            self.notice(trouble, "warning")
        await self.commands.loading.load_first()

    async def on_unmount(self) -> None:
        await self.conversation.close()

    def _handle_exception(self, error: Exception) -> None:
        """An error that nobody caught ends the app with a line. Textual would print the frames with
        their locals, which hold the chat."""
        self.leaving.save()
        self.leaving.say_farewell()
        if self._exception is None:
            self._exception = error
            self._exception_event.set()
            self.fault = unforeseen(error)
        self._return_code = 2
        self._close_messages_no_wait()

    # Doing something.

    def do(self, id: str, argument: str = "") -> None:
        """Carry out an action, or say why that is not possible now."""
        refusal = BY_ID[id].refusal(self.conversation.situation)
        if refusal is not None:
            self.status(refusal, "warning")
        elif id in REPEATED or id not in self._doing:
            self._doing.add(id)
            self.begin(self._do(id, argument), "do")

    async def _do(self, id: str, argument: str) -> None:
        try:
            async with self._one_by_one.setdefault(id, asyncio.Lock()):
                await self.commands.run(id, argument)
        finally:
            self._doing.discard(id)
            self.show_state()

    def action_do(self, id: str) -> None:
        """What keys are bound to. Esc stops a reply, or a switch to another pair; the first load
        it leaves alone, and goes back to the prompt."""
        first = self.conversation.setup.choice is None and not self.conversation.busy
        if id == "stop" and (first or not self.conversation.situation.working):
            self.main.prompt.focus()
        else:
            self.do(id)

    def begin(self, work: Coroutine[Any, Any, None], group: str) -> None:
        """Run something in the background; an error is shown in one line."""
        self.run_worker(self._guarded(work), group=group, exit_on_error=True)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except MacspecError as error:
            self.status(str(error), "error")
        except Exception as error:
            if os.environ.get("MACSPEC_DEBUG", "0") not in ("", "0"):
                raise
            self.status(unforeseen(error), "error")

    # What the keyboard and the widgets ask for.

    @on(Prompt.Submitted)
    def _sent(self, event: Prompt.Submitted) -> None:
        self.sending.send(event)

    @on(Prompt.Asked)
    def _help_asked_for(self) -> None:
        self.do("help")

    @on(Prompt.Blank)
    def _set_up(self) -> None:
        """Enter below the first run's card takes its proposal."""
        if self.main.welcome.has_class("-card") and not self.conversation.turns:
            self.do("setup")

    @on(Prompt.Changed)
    def _typed(self) -> None:
        self.sending.heed()

    async def _look_elsewhere(self) -> None:
        """Show what another window did to this conversation."""
        if not self.shown:
            return
        prompt, turns = self.main.prompt, self.conversation.turns
        if news := self.conversation.refresh():
            if turns != self.conversation.turns:
                await self.redraw()
            self.status(news, "warning")
        if not prompt.value and not self.sending.replying and not prompt.queue:
            self.begin(self._entitle(), "title")

    async def _entitle(self) -> None:
        if await self.conversation.entitle():
            self.show_state()

    @on(TurnChosen)
    def _went_to(self) -> None:
        self.show_state()

    @on(VersionAsked)
    def _clicked(self, event: VersionAsked) -> None:
        self.main.transcript.choose(event.turn_id)
        self.do("older" if event.by < 0 else "newer")

    @on(TextSelected)
    def _selected(self) -> None:
        if self.screen.get_selected_text():
            self.status("Ctrl+C copies the selection")

    @on(Tune)
    def _slid(self, event: Tune) -> None:
        self.begin(self._tune(event), "tune")

    async def _tune(self, event: Tune) -> None:
        try:
            await self.conversation.setup.tune(**event.changes)
        except MacspecError as error:
            self.main.sliders.refused(event.slider, event.value, str(error))
            raise
        finally:
            self.show_state()

    async def action_interrupt(self) -> None:
        """Ctrl+C: copy what is selected; else stop a reply or clear the prompt, and leave at the
        second time."""
        focused = self.focused
        selected = self.screen.get_selected_text() or getattr(focused, "selected_text", "")
        if selected:
            self.copy(selected, "the selection")
            self.screen.clear_selection()
            if isinstance(focused, TextArea):
                focused.move_cursor(focused.cursor_location)
            elif isinstance(focused, Input):
                focused.cursor_position = focused.cursor_position
            return
        now = time.monotonic()
        if now - self._armed < TWICE:
            self.leaving.leave()
            return
        self._armed = now
        if self.conversation.busy:
            self.conversation.stop()
        elif self.main.prompt.put_aside():
            self.status("cleared, ↑ brings it back; press Ctrl+C again to quit", seconds=TWICE)
            return
        self.status("press Ctrl+C again to quit; your chat is saved", seconds=TWICE)

    def copy_to_clipboard(self, text: str) -> None:
        """What Textual copies by itself goes the same way."""
        self.copy(text, "the selection")

    # As the view of commands.

    @property
    def own(self) -> Sequence[object]:
        return self, self.looks, self.dialogs

    @property
    def chosen(self) -> int | None:
        return self.main.transcript.chosen

    def status(
        self,
        line: str,
        severity: str = "information",
        *,
        also: bool = False,
        seconds: float | None = None,
    ) -> None:
        """Show a line in place of the key hints; ``also``: keep the one that is shown already."""
        if self.main.there:
            self.main.key_line.show_notice(line, severity, also=also, seconds=seconds)

    def notice(self, line: str, severity: str = "information") -> None:
        self.feed.notice(line, severity)

    @property
    def shown(self) -> bool:
        """Whether the main screen can be changed: not while the app is starting or closing."""
        return self.is_running and self.main.there

    def show_state(self) -> None:
        """Show what is not in the transcript, four times a second: title, numbers, keys."""
        if not self.shown:
            return
        main, state = self.main, self.conversation.panel()
        chat = self.conversation.chat
        title = (
            "New conversation" if chat is None or not chat.title else shortened(title_of(chat), 60)
        )
        main.title_line.show(title, state)
        if main.prompt.queue and not self.sending.replying:
            self.sending.send_queued()
        if not main.has_class("-no-panel"):
            (main.panel if main.beside else main.summary).show(state)
        main.sliders.show(state)
        main.key_line.show(
            hints(
                self.keys,
                self.conversation.situation,
                main.prompt.area.has_focus,
                below=main.transcript.unseen,
            )
        )

    def loading(self, event: Notice | LoadProgress) -> None:
        if isinstance(event, Notice):
            self.status(event.message, "warning", also=True)
        self.show_state()

    async def reply(self, updates: AsyncIterator[Update], typed: str = "") -> None:
        give_back = partial(self.main.prompt.give_back, typed) if typed else lambda: None
        self.begin(self.feed.stream(updates, give_back), "reply")

    def edit_turn(self, turn_id: int, text: str) -> None:
        self.sending.edit(turn_id, text)

    async def show_version(self, place: int) -> None:
        await self.redraw()
        now = self.conversation.turns[place]
        self.main.transcript.choose(now.id)
        self.status(f"version {now.sibling} of {now.siblings}")

    def copy(self, text: str, what: str) -> None:
        try:
            self.status(f"copied {what} ({outside.copy(text, self)})")
        except outside.ClipboardError as error:
            self.status(str(error), "error")

    def keep_typed(self, *, along: bool = False) -> None:
        prompt = self.main.prompt
        prompt.stop_editing()
        self.conversation.save_unsent("" if along else prompt.unsent)

    async def show_chat(self) -> None:
        prompt = self.main.prompt
        prompt.load(self.conversation.unsent)
        prompt.set_history(self.conversation.sent)
        await self.redraw()
        prompt.focus()

    async def redraw(self) -> None:
        await self.feed.show()
        if not self.conversation.turns:
            self.main.welcome.show_keys(self.keys)
            self.main.prompt.focus()

    def show_match(self, turn_id: int, words: str) -> None:
        # A transcript that was hidden behind the first hints has its size only then.
        self.call_after_refresh(self.main.transcript.find, turn_id, pattern_of(words))

    async def adjust(self, what: str, value: object) -> None:
        await self.do_tuning("")
        self.main.sliders.select(what)

    # Commands that are about this screen.

    async def do_tuning(self, argument: str) -> None:
        self.main.add_class("-sliders")
        self.call_after_refresh(self.main.sliders.focus)

    async def do_copy_selection(self, argument: str) -> None:
        text = self.screen.get_selected_text() or self.main.prompt.area.selected_text
        if not text:
            raise BadOptionError("nothing is selected: drag over text with the mouse first")
        self.copy(text, "the selection")

    async def do_follow(self, argument: str) -> None:
        self.main.transcript.action_follow()

    async def do_editor(self, argument: str) -> None:
        self.main.prompt.open_editor()

    async def do_report(self, argument: str) -> None:
        from macspec.diagnostics import report_file

        choice = self.commands.loading.choice
        path = await asyncio.to_thread(report_file, choice.target, choice.draft)
        self.status(f"report written to {path}; read it before you send it")

    async def do_suspend(self, argument: str) -> None:
        self.action_suspend_process()

    async def do_leave(self, argument: str) -> None:
        self.leaving.leave()
