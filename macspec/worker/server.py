"""The child's loop: one command after the other, and what can be done between two rounds."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Generator, Iterator
from typing import Any, Protocol

from ..errors import MacspecError, brief
from ..events import Event, Finished, Prefilled, Text
from .messages import (
    Answer,
    Ask,
    Failed,
    Load,
    Loaded,
    PairChoice,
    ReplyRequest,
    Status,
    Tune,
    Tuned,
    Tuning,
    Unload,
    Unloaded,
    Weigh,
    Weighed,
)
from .pipes import LOOK, Inbox, Outbox

Report = Callable[[Answer], None]


class Stopped(Exception):  # noqa: N818 - it is no error
    """A load was asked to end."""


class Served(Protocol):
    """What a server needs of an engine; ``macspec.worker.engine.Engine`` is the real one."""

    def load(self, choice: PairChoice, report: Report) -> Loaded: ...

    def unload(self) -> None: ...

    def reply(self, request: ReplyRequest) -> Generator[Event, None, None]: ...

    def stop(self) -> Finished: ...

    def weigh(self, choice: Weigh) -> Weighed: ...

    def tune(self, changes: Any) -> Tuning: ...

    def status(self) -> Status: ...

    def idle(self) -> Iterator[None]: ...

    def close(self) -> None: ...


class Server:
    """Serves an engine over two pipes, on the thread that runs it.

    Args:
        engine: what does the work.
        inbox: where commands come from.
        outbox: where events go.
    """

    def __init__(self, engine: Served, inbox: Inbox, outbox: Outbox) -> None:
        self._engine = engine
        self._inbox = inbox
        self._outbox = outbox
        self._idle: Iterator[None] | None = None

    def run(self) -> None:
        """Until the parent says that it is enough."""
        self._inbox.expendable = False
        while not self._inbox.closing:
            item = self._inbox.take()
            if item is not None:
                self._answer(*item)
            elif self._outbox:
                self._outbox.flush()
                self._inbox.wait(LOOK)
            elif self._idle is not None:
                self._idle_step(self._idle)
            else:
                self._inbox.wait()
        self._engine.close()
        self._outbox.drain()

    def _answer(self, call: int, command: Any) -> None:
        """Carry out a command, whatever comes of it."""
        try:
            self._send(call, self._done(call, command))
        except MacspecError as error:
            self._send(call, Failed("refused", str(error)))
        except Stopped:
            self._send(call, Failed("stopped", "it was stopped before it was done"))
        except Exception as error:
            log(error)
            self._send(call, Failed("error", _unforeseen(error)))

    def _done(self, call: int, command: Any) -> Answer:
        """Carry out a command and return what ends its call."""
        engine = self._engine
        match command:
            case Tune():
                return Tuned(engine.tune(command.changes))
            case Ask():
                return engine.status()
        self._idle = None
        if self._inbox.stopped(call):
            raise Stopped
        match command:
            case Load():
                self._inbox.expendable = True
                try:
                    return engine.load(command.choice, lambda event: self._report(call, event))
                finally:
                    self._inbox.expendable = False
            case Unload():
                engine.unload()
                return Unloaded()
            case Weigh():
                return engine.weigh(command)
            case _:
                return self._reply(call, command)

    def _reply(self, call: int, request: ReplyRequest) -> Finished:
        for event in self._engine.reply(request):
            if isinstance(event, Finished):
                break
            self._outbox.put(call, event)
            if not between_rounds(event):
                continue
            self._outbox.flush()
            self._outbox.make_room(lambda: self._inbox.stopped(call))
            if self._inbox.stopped(call):
                break
            while (item := self._inbox.take_quick()) is not None:
                self._answer(*item)
        finished = self._engine.stop()
        self._idle = self._engine.idle()
        return finished

    def _report(self, call: int, event: Answer) -> None:
        self._send(call, event)
        if self._inbox.stopped(call):
            raise Stopped

    def _send(self, call: int, event: Answer) -> None:
        self._outbox.put(call, event)
        self._outbox.flush()

    def _idle_step(self, idle: Iterator[None]) -> None:
        try:
            next(idle)
        except StopIteration:
            self._idle = None
        except Exception as error:
            log(error)
            self._idle = None


def between_rounds(event: Event) -> bool:
    """Whether all of a round has been told with this event, so that a reply can end here."""
    return not isinstance(event, Text | Prefilled)


def log(error: BaseException) -> None:
    """Log where an error came from. Its message may quote the chat and stays out."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    print(f"{frames}{type(error).__name__}", file=sys.stderr, flush=True)


def _unforeseen(error: Exception) -> str:
    return (
        f"unexpected {type(error).__name__} in the engine: {brief(error)} (if it happens again, "
        "please report it with the output of macspec check)"
    )
