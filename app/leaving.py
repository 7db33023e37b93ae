"""Leaving: on purpose, by a signal, or because something broke. Nothing that was typed is lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

from textual.widgets import Input, TextArea

from .base import Base
from .driver import ScreenDriver
from .faults import unforeseen

TWICE = 2.0
"""Seconds within which a second Ctrl+C leaves."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

PATIENCE = 3.0
"""Seconds in which the app must have ended, or is ended as it is, once everything is kept."""

HUNG_UP = 128 + signal.SIGHUP


class Leaving(Base):
    """Ctrl+C, signals and crashes."""

    fault: str | None = None
    """What broke the app, in a line; None while nothing did."""

    _armed = float("-inf")
    _asked = False

    def heed_signals(self) -> None:
        """Let a request to end the process end the app in order, and look how the terminal is: a
        closed one says so only to those that do not ignore SIGHUP."""
        if self.is_headless:
            return
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._ask)
        self.set_interval(1.0, self._look)

    def _ask(self, number: int, frame: object) -> None:
        """Runs between any two steps of the program; a second request is obeyed at once."""
        if self._asked:
            self._end(128 + number)
        self._asked = True
        self._watch(128 + number)
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.leave, 128 + number)

    def _watch(self, status: int) -> None:
        """See to it that the app ends, though a terminal that does not read holds it up."""
        if not self.is_headless:
            watch = threading.Timer(PATIENCE, self._end, (status,))
            watch.daemon = True
            watch.start()

    def _end(self, status: int) -> None:
        driver = self._driver
        if isinstance(driver, ScreenDriver):
            driver.let_go()
        os._exit(status)

    def _look(self) -> None:
        driver = self._driver
        if isinstance(driver, ScreenDriver):
            if driver.gone:
                self.leave(HUNG_UP)
            elif driver.caught_up():
                self.refresh()

    def leave(self, status: int = 0) -> None:
        """Keep everything, and end."""
        self.save()
        self.say_farewell()
        self._watch(status)
        self.exit(return_code=status)

    def save(self) -> None:
        """Keep the prompt and the reply as they are now."""
        with suppress(Exception):
            self.conversation.save_unsent(self.main.prompt.unsent)
        with suppress(Exception):
            self.conversation.saved_interrupt()

    def say_farewell(self) -> None:
        """Let go of the engine, beside all else that there is to do."""
        if self.farewell.ident is None:
            self.farewell.start()

    async def on_unmount(self) -> None:
        await self.conversation.close()

    async def do_leave(self, argument: str) -> None:
        self.leave()

    async def action_interrupt(self) -> None:
        """Copy what is selected; else stop a reply, and leave at the second time."""
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
            self.leave()
            return
        self._armed = now
        if self.conversation.busy:
            self.conversation.stop()
        self.say("Ctrl+C again leaves; everything is kept")

    def copy(self, text: str, what: str) -> None:
        """Copy a text, and say by which way."""
        raise NotImplementedError

    def _handle_exception(self, error: Exception) -> None:
        """An error that nobody caught ends the app with a line. Textual would print the frames with
        their locals, which hold the chat."""
        self.save()
        self.say_farewell()
        if self._exception is None:
            self._exception = error
            self._exception_event.set()
            self.fault = unforeseen(error)
        self._return_code = 2
        self._close_messages_no_wait()
