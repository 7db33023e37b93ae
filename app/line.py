"""Line mode: a conversation without a screen, for pipes, plain terminals and screen readers."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from macspec.errors import BadOptionError, MacspecError
from macspec.terminal import Asked, status_of
from macspec.worker import PairChoice

from . import message
from .chat.conversation import Conversation
from .linereader import Reader
from .lineview import LineView
from .slash import parse

TWICE = 2.0
"""Seconds within which a second Ctrl+C leaves."""

FAILED = 2
"""Exit status where something that came through a pipe failed."""

REQUESTS = (signal.SIGTERM, signal.SIGHUP)


class LineMode:
    """Chats until the end of input; Ctrl+C, signals and the exit status are handled here.

    Through a pipe each line is a message or a command; the status is 2 if one of them failed.

    Args:
        pairs: those to load at the start: the first that can be loaded.
    """

    def __init__(self, conversation: Conversation, pairs: Sequence[PairChoice]) -> None:
        self.conversation = conversation
        self.reader = Reader(lambda text: [it.text for it in self.view.commands.complete(text)])
        self.view = LineView(conversation, pairs, self.reader, self._until_loaded)
        self._loop = asyncio.new_event_loop()
        self._loading: asyncio.Task[None] | None = None
        self._armed = float("-inf")
        self._work: asyncio.Task[None] | None = None

    def run(self) -> int:
        """Chat until the end of input, and return the exit status."""
        status = 0
        with _signals():
            try:
                self._do(self._begin())
                while not self.view.left and self._next():
                    pass
            except KeyboardInterrupt as interrupt:
                # The second of two can come before the prompt is there again.
                idle = self._work is not None and self._work.done()
                status = 0 if idle and self._again() else status_of(interrupt)
            finally:
                self._close()
        return status or (FAILED if self.view.failures and not self.reader.interactive else 0)

    async def _begin(self) -> None:
        if self.reader.interactive:
            await self._greet()
        self._loading = asyncio.ensure_future(self.view.commands.loading.load_first())
        await asyncio.sleep(0)

    async def _greet(self) -> None:
        view, conversation = self.view, self.conversation
        view.status("line mode: /help lists the commands, Ctrl+D quits")
        if conversation.chat is None:
            if conversation.first_run:
                await view.do_about("")
        elif conversation.turns:
            view.status(f"continuing {view.named()}; /new starts another one")
        self.reader.remember(conversation.sent)
        view.offer_unsent()

    async def _until_loaded(self) -> None:
        """Wait until the first pair is there, or cannot be loaded."""
        if self._loading is not None:
            await self._loading

    def _next(self) -> bool:
        """Take the next message; whether there was one."""
        view = self.view
        draft, view.draft = view.draft, ""
        editing, view.editing = view.editing, None
        try:
            text = self.reader.message(draft)
        except BadOptionError as error:
            view.notice(str(error), "error")
            return True
        except Asked:
            self._keep(self.reader.typed)
            raise
        except KeyboardInterrupt:
            return self._interrupted()
        if text is None:
            if draft:
                self._keep("")
            return False
        if text.strip():
            self._do(self._message(text, editing))
        return True

    def _interrupted(self) -> bool:
        """Ctrl+C while nothing is done; whether to go on."""
        if not self.reader.interactive:
            raise KeyboardInterrupt
        self.view.output.end()
        if self._again():
            return False
        self.view.status("press Ctrl+C again to quit; the Up key brings back what you typed")
        return True

    def _again(self) -> bool:
        """Whether this Ctrl+C is the second of two."""
        now, before = time.monotonic(), self._armed
        self._armed = now
        return now - before < TWICE

    async def _message(self, text: str, editing: int | None) -> None:
        try:
            if not await self._commanded(text):
                await self._sent(text, editing)
        except MacspecError as error:
            self.view.notice(str(error), "error")

    async def _commanded(self, text: str) -> bool:
        """Carry out a command; whether it is one."""
        command = parse(text)
        if command is None:
            return False
        action, argument = command
        if action.screen:
            raise BadOptionError(f"/{action.slash} needs the screen")
        if (refusal := action.refusal(self.conversation.situation)) is not None:
            raise BadOptionError(refusal)
        if action.id == "models":
            await self._until_loaded()
        await self.view.commands.run(action.id, argument)
        return True

    async def _sent(self, text: str, editing: int | None) -> None:
        whole, notices = message.with_files(text)
        for notice in notices:
            self.view.status(notice)
        it, unsent = self.conversation, self.view.unoffered
        updates = it.ask(whole) if editing is None else it.edit(editing, whole)
        before = self.view.failures
        await self.view.reply(updates, text)
        lost = text if self.view.failures > before and not self.view.draft else ""
        self._keep("\n\n".join(filter(None, (unsent, lost))))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something to its end; Ctrl+C ends it early."""
        self._work = self._loop.create_task(work)
        self._armed = float("-inf")  # Twice means twice in the same work.
        with self._heeding():
            try:
                self._loop.run_until_complete(self._work)
            except asyncio.CancelledError:
                self.view.status("cancelled")

    @contextmanager
    def _heeding(self) -> Iterator[None]:
        """Have signals come between two steps of the loop, where they break nothing in two."""
        loop, before = self._loop, {}
        for number in (signal.SIGINT, *REQUESTS):
            if (handler := signal.getsignal(number)) is not signal.SIG_IGN:
                before[number] = handler
                act = self._stop if number == signal.SIGINT else partial(_ask, number, None)
                loop.add_signal_handler(number, act)
                if number in REQUESTS:
                    signal.signal(number, self._unread)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def _unread(self, number: int, frame: object) -> None:
        """The loop does what signals are for; but one that waits for a reader will not."""
        if self.view.output.writing:
            self.view.output.give_up()
            _ask(number, frame)

    def _stop(self) -> None:
        """Ctrl+C during work: a reply keeps its text so far, a load keeps the previous pair."""
        if self._again() or not self.reader.interactive:
            raise KeyboardInterrupt
        if self.conversation.busy:
            self.conversation.stop()
        elif self._loading is not None and not self._loading.done():
            self.conversation.setup.cancel()
        elif self._work is not None:
            self.conversation.setup.cancel()
            self._work.cancel()

    def _keep(self, typed: str) -> None:
        with suppress(MacspecError):
            self.conversation.save_unsent(typed)

    def _close(self) -> None:
        with suppress(MacspecError):
            self.conversation.saved_interrupt()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self.conversation.close())
        self._loop.close()


def _ask(number: int, frame: object) -> None:
    raise Asked(number)


@contextmanager
def _signals() -> Iterator[None]:
    """Let Ctrl+C, and requests to end, be exceptions; what is ignored stays so."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *REQUESTS)}

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            new = signal.default_int_handler if number == signal.SIGINT else _ask
            signal.signal(number, new)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
