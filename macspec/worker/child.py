"""The engine's child process: ``python -m macspec.worker.child COMMANDS EVENTS PARENT FORMAT``.

The first two arguments are descriptors. Standard output and error are free for anything; the parent
logs them.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from ..errors import GpuLostError, MacspecError, brief, frames, is_panic, known_failure
from ..events import Finished, between_rounds
from ..parent import exit_with_parent
from .messages import (
    ENDS,
    FORMAT,
    GPU_LOST,
    Answer,
    Close,
    CountTokens,
    Failed,
    GetStatus,
    MeasuredEnergy,
    MeasureMargin,
    PairChoice,
    ReplyRequest,
    SharedReply,
    Stop,
    Tune,
    Tuned,
    decode,
    encode,
)

if TYPE_CHECKING:
    from .engine import Engine
    from .shared import Shared

LAST = (Failed, *ENDS.values())
"""Answers after which a call gets no other."""

QUICK = (Tune, GetStatus, CountTokens, MeasuredEnergy)
"""Commands that are answered between two rounds of a reply."""

SHARING = (*QUICK, SharedReply)
"""Those that are between two rounds of shared replies."""

HELD = 4 * 2**20
"""Bytes of events to buffer for a late reader before decoding waits."""

LEAVE = 1.0
"""Seconds to shut down once the parent has asked for it."""

LOOK = 0.02
"""Seconds between two attempts to write to a late reader, or two looks while none has a turn."""


def log(error: BaseException) -> None:
    print(frames(error), file=sys.stderr, flush=True)


class Stopped(Exception):  # noqa: N818 - it is no error
    """A load was asked to stop."""


class Server:
    """Serves an engine over two pipes, on the thread that calls ``run``."""

    def __init__(self, engine: Engine, inbox: Inbox, outbox: Outbox) -> None:
        self._engine = engine
        self._inbox = inbox
        self._outbox = outbox
        self._idle: Iterator[None] | None = None

    def run(self) -> None:
        """Serve until the parent closes."""
        self._inbox.expendable = False
        while not self._inbox.closing:
            shared = self._engine.shared
            item = self._inbox.take(SHARING if shared else None)
            if item is not None:
                self._answer(*item)
            elif shared:
                self._turn(shared)
            elif self._outbox:
                self._outbox.flush()
                self._inbox.wait(LOOK)
            elif self._idle is not None:
                self._idle_step(self._idle)
            else:
                self._inbox.wait()
        self._engine.close()
        self._outbox.drain()

    def _turn(self, shared: Shared) -> None:
        """A round of the shared reply whose turn it is."""
        for call in shared.calls:
            if self._inbox.stopped(call):
                self._reply_to(call, partial(shared.stop, call))
        for call in shared.tokenized:
            self._reply_to(call, partial(shared.queue, call))
        if (turn_of := shared.turn_of) is not None:
            self._reply_to(turn_of, lambda: shared.turn(self._outbox.put))
        elif shared:
            shared.wait(LOOK)
        self._outbox.flush()
        self._outbox.make_room(lambda: self._inbox.closing)
        if not shared:
            self._idle = self._engine.idle()

    def _answer(self, call: int, command: Any) -> None:
        self._reply_to(call, lambda: self._done(call, command))

    def _reply_to(self, call: int, work: Callable[[], Answer | None]) -> None:
        """Send what a piece of work returns, if anything, or how it failed."""
        try:
            if (answer := work()) is not None:
                self._send(call, answer)
        except GpuLostError:
            # Another process can: the parent has it go on.
            self._outbox.drain()
            os._exit(GPU_LOST)
        except MacspecError as error:
            self._send(call, Failed("refused", str(error), type(error).__name__))
        except Stopped:
            self._send(call, Failed("stopped", "stopped before it finished"))
        except BaseException as error:
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            log(error)
            self._engine.unexpected(error)
            if (known := known_failure(error)) is not None:
                self._send(call, Failed("error", known))
                return
            what = f"unexpected {type(error).__name__} in the engine: {brief(error)}"
            report = "please report it with the output of macspec check"
            self._send(call, Failed("error", f"{what} (if it happens again, {report})"))

    def _done(self, call: int, command: Any) -> Answer | None:
        engine = self._engine
        if not isinstance(command, QUICK):
            self._idle = None
            if self._inbox.stopped(call):
                raise Stopped
        self._inbox.expendable = isinstance(command, PairChoice)
        try:
            match command:
                case PairChoice():
                    loaded = engine.load(command, lambda event: self._report(call, event))
                    self._idle = engine.idle()
                    return loaded
                case ReplyRequest():
                    return self._reply(call, command)
                case SharedReply():
                    return engine.share(call, command)
                case Tune(changes):
                    return Tuned(engine.tune(changes))
                case CountTokens():
                    return engine.count_tokens(command.request)
                case MeasuredEnergy():
                    return engine.note_energy(command)
                case MeasureMargin():
                    return engine.score_margin(command)
                case _:
                    return engine.status()
        finally:
            self._inbox.expendable = False

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
            while (item := self._inbox.take(QUICK)) is not None:
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
        if isinstance(event, LAST):
            self._inbox.ended(call)

    def _idle_step(self, idle: Iterator[None]) -> None:
        try:
            next(idle)
        except Exception as error:
            if not isinstance(error, StopIteration):
                log(error)
                self._engine.unexpected(error)
            self._idle = None


class Inbox:
    """Commands, read on a thread of its own, which ends the process when the parent is gone."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._commands: deque[tuple[int, Any]] = deque()
        self._open: set[int] = set()
        """Calls that have not had their last answer."""
        self._stopped: set[int] = set()
        """Those of them that are to end early."""
        self._arrived = threading.Condition()
        self.closing = False
        """Whether the parent has asked this process to end."""
        self.expendable = True
        """Whether it may end at once, with nothing to save."""
        threading.Thread(target=self._read, name="commands", daemon=True).start()

    def __bool__(self) -> bool:
        return bool(self._commands) or self.closing

    def take(self, kinds: tuple[type, ...] | None = None) -> tuple[int, Any] | None:
        """The next command, of these kinds only, and its call."""
        with self._arrived:
            for item in self._commands:
                if kinds is None or isinstance(item[1], kinds):
                    self._commands.remove(item)
                    return item
        return None

    def wait(self, timeout: float | None = None) -> None:
        """Wait for a command, or for the end."""
        with self._arrived:
            self._arrived.wait_for(lambda: self, timeout)

    def stopped(self, call: int) -> bool:
        """Whether a call is to end early."""
        return self.closing or call in self._stopped

    def ended(self, call: int) -> None:
        """Forget a call that has had its last answer."""
        with self._arrived:
            self._open.discard(call)
            self._stopped.discard(call)

    def _read(self) -> None:
        with open(self._descriptor, "rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                call, command = decode(line)
                with self._arrived:
                    if isinstance(command, Stop):
                        self._stopped |= {command.call} & self._open
                    elif isinstance(command, Close):
                        self.closing = True
                    else:
                        self._open.add(call)
                        self._commands.append((call, command))
                    self._arrived.notify_all()
        if self.closing and not self.expendable:
            time.sleep(LEAVE)
        os._exit(0)


class Outbox:
    """Events, buffered for a late reader; a round waits only when ``HELD`` bytes do."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._held = bytearray()

    def __bool__(self) -> bool:
        return bool(self._held)

    def put(self, call: int, event: Any) -> None:
        """Add an event, to be sent with the next ``flush``."""
        self._held += encode(call, event)

    def flush(self) -> None:
        """Send what the pipe takes at once."""
        try:
            while self._held:
                del self._held[: os.write(self._descriptor, self._held)]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            os._exit(0)

    def make_room(self, give_up: Callable[[], bool]) -> None:
        """Wait until fewer than ``HELD`` bytes are buffered, or ``give_up`` returns true."""
        while len(self._held) >= HELD and not give_up():
            self._wait()

    def drain(self) -> None:
        """Wait until everything is sent; the inbox ends the process if nobody reads."""
        while self._held:
            self._wait()

    def _wait(self) -> None:
        select.select([], [self._descriptor], [], LOOK)
        self.flush()


def engine() -> Engine:
    """The real engine, whose import takes long."""
    from .engine import Engine

    return Engine()


def main(arguments: Sequence[str], make: Callable[[], Engine] = engine) -> None:
    """Serve until the parent closes its end, then exit without the interpreter's clean-up."""
    commands, events, parent = map(int, arguments[:3])
    if arguments[3] != FORMAT:
        sys.exit("macspec was updated while it was running; restart it")
    for descriptor in (commands, events):
        os.set_inheritable(descriptor, False)
    exit_with_parent(parent)
    if isinstance(sys.stdout, TextIOWrapper):
        # Buffered output would be lost if this process is killed.
        sys.stdout.reconfigure(line_buffering=True)
    inbox, outbox = Inbox(commands), Outbox(events)
    Server(make(), inbox, outbox).run()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
