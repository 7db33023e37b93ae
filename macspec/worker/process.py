"""The engine in a child process."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..events import Notice
from .call import Call
from .client import EngineClient
from .codec import encode
from .link import Link
from .log import Log
from .messages import (
    ENDS,
    Ask,
    Close,
    Command,
    Failed,
    Load,
    Loaded,
    PairChoice,
    ReplyRequest,
    Stop,
    Tune,
    Tuned,
    Tuning,
    Unload,
    Unloaded,
    Weigh,
)

# Not from the current folder, where anything may be called macspec.
PROGRAM = (sys.executable, "-P", "-m", "macspec.worker.child")

GRACE = 1.0
"""Seconds that an engine has to keep what it learned before it is killed."""


class ProcessEngine(EngineClient):
    """An ``EngineClient`` whose engine is a child process, started when it is first needed.

    If the child is lost, every open call ends with ``Failed`` of kind crashed and keeps its text,
    and the next call starts another one, which loads the last pair before it replies.

    Args:
        program: what to run instead of the engine.
        log: where the child's standard output and error go; None: ``engine.log`` in the user's
            state folder.
    """

    def __init__(self, *, program: Sequence[str] = PROGRAM, log: Path | None = None) -> None:
        self._program = program
        self._log = log
        self._lock = threading.RLock()
        self._link: Link | None = None
        self._calls: dict[int, tuple[Command, Call]] = {}
        self._again: set[int] = set()
        """Those that load a lost pair again."""
        self._next = 0
        self._choice: PairChoice | None = None
        """The last pair that was loaded."""
        self._there = False
        """Whether the child has it."""
        self._tuning = Tuning()
        self._closed = False
        atexit.register(self.close)

    @property
    def pid(self) -> int | None:
        """The child's process id; None while there is none."""
        link = self._link
        return None if link is None else link.pid

    def start(self) -> None:
        with self._lock:
            if self._link is None and not self._closed:
                self._link = Link(self._program, Log(self._log), self._take, self._lose)
                if self._tuning != Tuning():
                    self._link.send(encode(0, Tune(asdict(self._tuning))))

    def load(self, choice: PairChoice) -> Call:
        return self._ask(Load(choice))

    def unload(self) -> Call:
        return self._ask(Unload())

    def reply(self, request: ReplyRequest) -> Call:
        return self._ask(request)

    def tune(self, **changes: Any) -> Call:
        return self._ask(Tune(changes))

    def status(self) -> Call:
        return self._ask(Ask())

    def weigh(self, request: ReplyRequest, said: tuple[int, ...], tokens: tuple[int, ...]) -> Call:
        return self._ask(Weigh(request, said, tokens))

    def interrupt(self) -> None:
        with self._lock:
            replies = [
                call for command, call in self._calls.values() if isinstance(command, ReplyRequest)
            ]
        for call in replies:
            call.stop()

    def close(self, grace: float = GRACE) -> None:
        atexit.unregister(self.close)
        with self._lock:
            self._closed = True
            link = self._link
        if link is not None:
            link.close(encode(0, Close()), grace)

    def _ask(self, command: Command) -> Call:
        with self._lock:
            number = self._number()
            call = Call(ENDS[type(command)], lambda: self._stop(number))
            if self._closed:
                call.put(Failed("refused", "the engine was closed: start macspec again"))
                return call
            self.start()
            assert self._link is not None
            if isinstance(command, ReplyRequest) and not self._there and self._choice is not None:
                self._restore(self._choice, call)
            self._calls[number] = command, call
            self._link.send(encode(number, command))
        return call

    def _restore(self, choice: PairChoice, call: Call) -> None:
        """Have a new child load the pair that the old one had, as a part of another call."""
        assert self._link is not None
        number, command = self._number(), Load(choice)
        self._calls[number] = command, call
        self._again.add(number)
        self._link.send(encode(number, command))
        call.put(Notice("the engine is started again, and reads the conversation anew"))

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _stop(self, number: int) -> None:
        with self._lock:
            if number in self._calls and self._link is not None:
                self._link.send(encode(0, Stop(number)))

    def _take(self, link: Link, number: int, event: Any) -> None:
        """Pass an event on to its call, on the link's thread."""
        with self._lock:
            command, call = self._calls.get(number, (None, None))
            if command is None or call is None:
                return
            if isinstance(event, Loaded) and isinstance(command, Load):
                self._choice, self._there = command.choice, True
            elif isinstance(event, Unloaded):
                self._choice, self._there = None, False
            elif isinstance(event, Tuned):
                self._tuning = event.tuning
            if isinstance(event, ENDS[type(command)] | Failed):
                del self._calls[number]
            elif isinstance(event, Notice) and number in self._again:
                return  # It was said when the pair was loaded first.
        call.put(event)

    def _lose(self, link: Link, how: str) -> None:
        """The child is gone."""
        with self._lock:
            self._link, self._there = None, False
            calls = [call for _, call in self._calls.values()]
            self._calls.clear()
            self._again.clear()
        if self._closed:
            failed = Failed("stopped", "the engine was closed")
        else:
            kept = "what was written is kept, and the next message starts it again"
            failed = Failed("crashed", f"the engine stopped: {how}; {kept}")
        for call in calls:
            call.put(failed)
