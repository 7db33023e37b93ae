"""Leaving: on purpose, by a signal, or because something broke. Nothing that was typed is lost."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress

from .base import Base
from .faults import unforeseen

TWICE = 2.0
"""Seconds within which a second Ctrl+C leaves."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Leaving(Base):
    """Ctrl+C, signals and crashes."""

    fault: str | None = None
    """What broke the app, in a line; None while nothing did."""

    _armed = float("-inf")

    def heed_signals(self) -> None:
        """Let a request to end the process end the app in order."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._asked, number)

    def _asked(self, number: signal.Signals) -> None:
        self._leave(128 + number)

    def _leave(self, status: int = 0) -> None:
        self.save()
        self.say_farewell()
        self.exit(return_code=status)

    def say_farewell(self) -> None:
        """Let go of the engine, beside all else that there is to do."""
        if self.farewell.ident is None:
            self.farewell.start()

    def save(self) -> None:
        """Keep the prompt and the reply as they are now."""
        with suppress(Exception):
            self.talk.save_unsent(self.main.prompt.unsent)
        with suppress(Exception):
            self.talk.saved_interrupt()

    async def do_leave(self, argument: str) -> None:
        self._leave()

    async def action_interrupt(self) -> None:
        """Copy what is selected; else stop a reply, and leave at the second time."""
        focused = self.focused
        selected = self.screen.get_selected_text() or getattr(focused, "selected_text", "")
        if selected:
            self.copy(selected, "the selection")
            self.screen.clear_selection()
            return
        now = time.monotonic()
        if now - self._armed < TWICE:
            await self.do_leave("")
            return
        self._armed = now
        if self.talk.busy:
            self.talk.stop()
        self.say("Ctrl+C again leaves; everything is kept")

    def copy(self, text: str, what: str) -> None:
        """Copy a text, and say by which way."""
        raise NotImplementedError

    def _handle_exception(self, error: Exception) -> None:
        """An error that nobody caught ends the app with a line, without the locals of its frames,
        which hold the chat."""
        self.save()
        self.say_farewell()
        if self._exception is None:
            self._exception = error
            self._exception_event.set()
            self.fault = unforeseen(error)
        self._return_code = 2
        self._close_messages_no_wait()
