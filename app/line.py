"""Line mode: a conversation without a screen, for pipes, plain terminals and screen readers."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from macspec.config import Config, Effective
from macspec.config.schema import BUILT_IN, NONE
from macspec.errors import BadOptionError, MacspecError
from macspec.terminal import INTERRUPTED, Asked
from macspec.worker import PairChoice

from . import message as files
from .actions import ACTIONS, GROUPS, Choice
from .chat.conversation import Conversation
from .chat.picker import PRIVATE, WHAT, proposal
from .chat.turns import ChatNotice, Update
from .linechats import LineChats
from .linemodels import LineModels
from .linereader import Reader
from .lineturns import LineTurns
from .slash import continuations, parse

TWICE = 2.0
"""Seconds within which a second Ctrl+C leaves."""

FAILED = 2
"""Exit status where something that came through a pipe could not be done."""

REQUESTS = (signal.SIGTERM, signal.SIGHUP)


def chat_in_lines(
    conversation: Conversation,
    settings: Effective,
    choice: PairChoice,
    fallback: PairChoice | None = None,
) -> int:
    """Chat until the end of input, and return the exit status.

    Through a pipe each line is a message or a command; the status is 2 if one of them failed.

    Args:
        choice: the pair to load at first.
        fallback: the one to load where that fails.
    """
    lines = Lines(conversation, settings.config, choice)
    lines.fallback = fallback
    return lines.run()


class Lines(LineTurns, LineChats, LineModels):
    """The conversation: messages in, replies out."""

    def __init__(
        self,
        conversation: Conversation,
        config: Config,
        choice: PairChoice,
        reader: Reader | None = None,
    ) -> None:
        super().__init__(conversation, config, choice, reader or Reader(self._complete))
        self._loop = asyncio.new_event_loop()
        self._armed = float("-inf")
        self._work: asyncio.Task[None] | None = None
        conversation.listener = self._hear

    def run(self) -> int:
        """Chat until the end of input."""
        status = 0
        with _signals():
            try:
                self._greet()
                self._do(self._begin())
                while not self.left and self._next():
                    pass
            except KeyboardInterrupt as interrupt:
                status = interrupt.status if isinstance(interrupt, Asked) else INTERRUPTED
            finally:
                self._close()
        return status or (FAILED if self.failures and not self.reader.interactive else 0)

    def _hear(self, update: Update) -> None:
        """What happens outside of replies."""
        if isinstance(update, ChatNotice):
            self.say(update.line)

    def _greet(self) -> None:
        if not self.reader.interactive:
            return
        self.say("line mode; /help lists the commands, and the end of input (Ctrl+D) leaves")
        if self.conversation.chat is None:
            if self.conversation.first_run:
                self._about()
        elif self.conversation.turns:
            self.say(f"going on with {self._named()}; /new begins another one")
        self.reader.remember(self.conversation.sent)
        self.offer_unsent()

    async def _begin(self) -> None:
        self.begin_loading()
        await asyncio.sleep(0)

    def _next(self) -> bool:
        """Take the next message; whether there was one."""
        begin, self.begin = self.begin, ""
        editing, self.editing = self.editing, None
        try:
            text = self.reader.message(begin=begin)
        except BadOptionError as error:
            self.failures += 1
            self.say(str(error))
            return True
        except Asked:
            self._keep(self.reader.typed)
            raise
        except KeyboardInterrupt:
            return self._interrupted()
        if text is None:
            if begin:
                self._keep("")
            return False
        if text.strip():
            self._do(self._message(text, editing))
        return True

    def _interrupted(self) -> bool:
        """Ctrl+C while nothing is done; whether to go on."""
        if not self.reader.interactive:
            raise KeyboardInterrupt
        self.output.end()
        now, before = time.monotonic(), self._armed
        self._armed = now
        if now - before < TWICE:
            return False
        self.say("Ctrl+C again leaves; what you typed comes back with the Up key")
        return True

    async def _message(self, text: str, editing: int | None) -> None:
        try:
            command = parse(text)
            if command is not None:
                refusal = command.action.refusal(self.situation())
                if command.action.screen:
                    refusal = f"/{command.action.slash} needs the screen"
                if refusal is not None:
                    raise BadOptionError(refusal)
                await getattr(self, f"do_{command.action.id}")(command.argument)
                return
            message = files.with_files(text)
            for notice in message.notices:
                self.say(notice)
            conversation, unsent = self.conversation, self.unoffered
            await self.reply(
                conversation.ask(message.text)
                if editing is None
                else conversation.edit(editing, message.text)
            )
            self._keep(unsent)
        except MacspecError as error:
            self.failures += 1
            self.say(str(error))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something to its end; Ctrl+C ends it early."""
        self._work = self._loop.create_task(work)
        self._armed = float("-inf")  # Twice means twice in the same work.
        with self._heeding():
            try:
                self._loop.run_until_complete(self._work)
            except asyncio.CancelledError:
                self.say("given up")

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
        if self.output.writing:
            self.output.give_up()
            _ask(number, frame)

    def _stop(self) -> None:
        """Ctrl+C while something is done: a reply keeps what came, a load leaves the old pair."""
        now, before = time.monotonic(), self._armed
        self._armed = now
        if now - before < TWICE or not self.reader.interactive:
            raise KeyboardInterrupt
        if self.conversation.busy:
            self.conversation.stop()
        elif self._loading is not None and not self._loading.done():
            self.conversation.cancel_load()
        elif self._work is not None:
            self.conversation.cancel_load()
            self._work.cancel()

    def _keep(self, typed: str) -> None:
        with suppress(MacspecError):
            self.conversation.save_unsent(typed)

    def _close(self) -> None:
        """Keep everything."""
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

    # What the other parts leave.

    async def do_help(self, argument: str) -> None:
        self.print("What begins with a slash is a command, all else a message. @FILE in a message")
        self.print("brings the file along; a backslash at the end of a line goes on in the next.")
        able = [action for action in ACTIONS if not action.screen]
        for group in GROUPS:
            actions = [action for action in able if action.group == group]
            if actions:
                self.print()
                self.print(group)
            for action in actions:
                name = f"/{action.slash} {action.argument}".rstrip()
                self.print(f"{name}: {action.about}")

    async def do_about(self, argument: str) -> None:
        self._about()

    def _about(self) -> None:
        for line in (WHAT, *proposal().lines(), PRIVATE):
            self.print(line)

    async def do_report(self, argument: str) -> None:
        from macspec.diagnostics import report

        choice = self.choice
        report(self.output, target=choice.target or BUILT_IN, draft=choice.draft or NONE)

    async def do_leave(self, argument: str) -> None:
        self.left = True

    # What can be typed.

    def chats_offered(self) -> Sequence[Choice]:
        """Conversations to open."""
        return [(str(row.id), row.title) for row in self.chats.listed(20)]

    def _complete(self, text: str) -> Sequence[str]:
        return [it.text for it in continuations(text, _Offers(self))]


class _Offers:
    """What can follow commands."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def themes(self) -> Sequence[Choice]:
        return ()

    def models(self) -> Sequence[Choice]:
        return self._lines.models()

    def chats(self) -> Sequence[Choice]:
        return self._lines.chats_offered()


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
