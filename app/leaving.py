"""Leaving: on purpose, by a signal, or because of an error. Nothing that was typed is lost."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from textual.app import App

from macspec.config.paths import state_folder
from macspec.errors import brief
from macspec.worker import Log

from .chat.conversation import Conversation
from .driver import ScreenDriver

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

PATIENCE = 3.0
"""Seconds in which the app must have ended, or is ended as it is, once everything is saved."""

HUNG_UP = 128 + signal.SIGHUP

REPORT = "please report it with the output of macspec check --report"


class Leaving:
    """Saves everything, and ends the app in time.

    Args:
        unsent: what is typed and not sent.
        farewell: lets go of the engine; called once, on a thread of its own.
    """

    def __init__(
        self,
        app: App[None],
        conversation: Conversation,
        unsent: Callable[[], str],
        farewell: Callable[[], None],
    ) -> None:
        self._app, self._conversation, self._unsent = app, conversation, unsent
        self._farewell = threading.Thread(target=farewell, name="farewell")
        self._asked = False

    def heed_signals(self) -> None:
        """Let a request to end the process end the app in order. A closed terminal sends SIGHUP
        only to those that do not ignore it, so that the terminal is watched too."""
        if self._app.is_headless:
            return
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._ask)
        self._app.set_interval(1.0, self._look)

    def leave(self, status: int = 0) -> None:
        """Save everything, and end."""
        self.save()
        self.say_farewell()
        self._watch(status)
        self._app.exit(return_code=status)

    def save(self) -> None:
        """Save the prompt and the reply as they are now."""
        with suppress(Exception):
            self._conversation.save_unsent(self._unsent())
        with suppress(Exception):
            self._conversation.saved_interrupt()

    def say_farewell(self, *, wait: bool = False) -> None:
        """Let go of the engine, in parallel to whatever else is left to do."""
        if self._farewell.ident is None:
            self._farewell.start()
        if wait:
            self._farewell.join()

    def _ask(self, number: int, frame: object) -> None:
        """Runs between any two steps of the program; a second request is obeyed at once."""
        if self._asked:
            self._end(128 + number)
        self._asked = True
        self._watch(128 + number)
        assert self._app._loop is not None
        self._app._loop.call_soon_threadsafe(self.leave, 128 + number)

    def _watch(self, status: int) -> None:
        """Make sure that the app ends, though a terminal that does not read holds it up."""
        if not self._app.is_headless:
            watch = threading.Timer(PATIENCE, self._end, (status,))
            watch.daemon = True
            watch.start()

    def _end(self, status: int) -> None:
        driver: Any = self._app._driver
        if isinstance(driver, ScreenDriver):
            driver.let_go()
        os._exit(status)

    def _look(self) -> None:
        driver: Any = self._app._driver
        if isinstance(driver, ScreenDriver):
            if driver.gone:
                self.leave(HUNG_UP)
            elif driver.caught_up():
                self._app.refresh()


def log_path() -> Path:
    """Where unexpected errors are logged."""
    return state_folder() / "app.log"


def unforeseen(error: BaseException) -> str:
    """Log an unexpected error, and say it in a line.

    Its message may quote the chat, so the log has only its kind and where it came from.
    """
    frames = "".join(traceback.format_tb(error.__traceback__))
    with suppress(OSError):
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        Log(log_path()).write(f"--- {stamp} {type(error).__name__}\n{frames}".encode())
    return f"unexpected {type(error).__name__}: {brief(error)} (a bug in macspec: {REPORT})"
