"""The engine in a child process."""

from __future__ import annotations

import atexit
import itertools
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from io import FileIO
from pathlib import Path
from typing import Any

from ..errors import brief, cause
from ..events import Notice
from ..inuse import died, in_flight
from .asked import REPLIES, Asked
from .client import Call, EngineClient
from .log import Log
from .messages import (
    ENDS,
    FORMAT,
    GPU_LOST,
    Close,
    Command,
    Failed,
    GetStatus,
    Loaded,
    PairChoice,
    Stop,
    Tune,
    Tuned,
    Tuning,
    decode,
    encode,
)
from .watch import TICK, Watch

# Not from the current folder, where anything may be called macspec.
PROGRAM = (sys.executable, "-P", "-m", "macspec.worker.child")

GRACE = 1.0
"""Seconds an engine has to save what it learned before it is killed."""

CHUNK = 2**16

LONGEST = 64 * 2**20
"""Bytes of a message."""

MOST = 16
"""Chunks of a dead child's output that are still read; a pipe holds less."""

LINGER = 1.0
"""Seconds a child has to end once it has closed its pipe."""


class ProcessEngine(EngineClient):
    """An engine in a child process, which starts when it is first needed.

    If the child is lost, every open call ends with ``Failed`` of kind crashed and keeps its text,
    and the next call starts another child, which loads the last pair before it replies. If that
    happens while macspec's kernels run, another child goes on with the open calls at once, without
    these kernels.

    Another ``program`` may run instead of the engine; ``log`` is as in ``Log``.
    """

    def __init__(self, *, program: Sequence[str] = PROGRAM, log: Path | None = None) -> None:
        self._program = program
        self._log = log
        self._lock = threading.RLock()
        self._child: ChildProcess | None = None
        self._calls: dict[int, Asked] = {}
        self._numbers = itertools.count(1)
        self._choice: PairChoice | None = None
        """The last pair that was loaded."""
        self._pair_loaded = False
        """Whether the child has that pair."""
        self._tuning = Tuning()
        self._watch = Watch()
        self._closed = False
        atexit.register(self.close)

    @property
    def pid(self) -> int | None:
        """The child's process id; None while there is none."""
        child = self._child
        return None if child is None else child.pid

    def start(self) -> None:
        with self._lock:
            if self._child is None and not self._closed:
                log = Log(self._log)
                self._child = ChildProcess(self._program, log, self._take, self._lose, self._look)
                if self._tuning != Tuning():
                    self._child.send(encode(0, Tune(asdict(self._tuning))))

    def ask(self, command: Command) -> Call:
        with self._lock:
            numbers: list[int] = []
            call = Call(ENDS[type(command)], lambda: self._stop(numbers))
            asked = Asked(command, call, numbers)
            if self._closed:
                call.put(Failed("refused", "the engine is closed; restart macspec"))
                return call
            try:
                self.start()
            except (OSError, RuntimeError) as error:  # No descriptor, or no thread, is left.
                call.put(Failed("crashed", f"the engine could not be started ({cause(error)})"))
                return call
            if self._send(asked, command):
                call.put(Notice("engine restarted; rereading the conversation"))
        return call

    def interrupt(self) -> None:
        with self._lock:
            replies = [it.call for it in self._calls.values() if isinstance(it.command, REPLIES)]
        for call in replies:
            call.stop()

    def close(self, grace: float = GRACE) -> None:
        atexit.unregister(self.close)
        with self._lock:
            self._closed = True
            child = self._child
        if child is not None:
            child.close(encode(0, Close()), grace)

    def _send(self, asked: Asked, command: Command) -> bool:
        """Send a command, after the pair that it needs where that was lost; returns whether it
        was."""
        assert self._child is not None
        if self._current is None:
            self._watch.begin()
        number = next(self._numbers)
        asked.numbers.append(number)
        lost = None if self._pair_loaded else self._choice
        again = lost is not None and isinstance(command, REPLIES)
        if again and lost is not None:
            load = next(self._numbers)
            asked.numbers.append(load)
            self._calls[load] = Asked(lost, asked.call, asked.numbers)
            self._child.send(encode(load, lost))
        self._calls[number] = asked
        self._child.send(encode(number, command))
        return again

    def _stop(self, numbers: Sequence[int]) -> None:
        with self._lock:
            if self._current in numbers:
                self._watch.stop()
            for number in numbers:
                if number in self._calls and self._child is not None:
                    self._calls[number].stopped = True
                    self._child.send(encode(0, Stop(number)))

    @property
    def _current(self) -> int | None:
        """The number of the call that the child works on; None while it is idle."""
        quick = (Tune, GetStatus)
        working = (it for it, one in self._calls.items() if not isinstance(one.command, quick))
        return min(working, default=None)

    def _look(self) -> None:
        """Nothing came for a moment, on the child's thread."""
        with self._lock:
            current, child = self._current, self._child
            if current is None or child is None:
                return
            asked = self._calls[current]
            verdict = self._watch.look(asked.command, child.pid)
        if verdict.notice is not None:
            asked.call.put(verdict.notice)
        hung = verdict.hung and child.pid is not None and in_flight(child.pid)
        if verdict.hopeless or hung:
            child.kill("it did not answer and was ended", hung=hung)

    def _take(self, number: int, event: Any) -> None:
        """Pass an event on to its call, on the child's thread."""
        with self._lock:
            self._watch.alive()
            asked = self._calls.get(number)
            if asked is None:
                return
            command, call = asked.command, asked.call
            current = self._current
            back = self._watch.hear(event) if number == current else None
            if isinstance(event, Loaded) and isinstance(command, PairChoice):
                self._choice, self._pair_loaded = command, True
            elif isinstance(event, Tuned):
                self._tuning = event.tuning
            if isinstance(event, ENDS[type(command)] | Failed):
                del self._calls[number]
            elif isinstance(event, Notice) and call.end is not ENDS[type(command)]:
                return  # Of a lost pair: shown when it was first loaded.
            if self._current != current:
                self._watch.begin()
        if back is not None:
            call.put(back)
        asked.take(event)

    def _lose(self, how: str) -> None:
        with self._lock:
            child, self._child, self._pair_loaded = self._child, None, False
            asked = list(self._calls.values())
            self._calls.clear()
            if child is not None and child.kernels_ran and not self._closed:
                asked = self._go_on(asked)
            calls = [it.call for it in asked]
        if self._closed:
            failed = Failed("stopped", "the engine was closed")
        else:
            kept = "the text so far is kept, and the next message restarts it"
            failed = Failed("crashed", f"the engine stopped: {how}; {kept}")
        for call in calls:
            call.put(failed)

    def _go_on(self, asked: list[Asked]) -> list[Asked]:
        """Have another child go on without macspec's kernels; returns the calls that cannot."""
        if self._choice is None or self._choice.kernels == "off":
            return asked
        self._choice = replace(self._choice, kernels="off")
        if not any(isinstance(it.command, REPLIES) for it in asked):
            return asked
        try:
            self.start()
        except (OSError, RuntimeError):
            return asked
        ended = []
        for it in asked:
            command = it.go_on() if not it.stopped else None
            if command is not None:
                self._send(it, command)
            elif it.stopped:
                it.call.put(Failed("stopped", "stopped after the engine was lost"))
            else:
                ended.append(it)
        return ended


class ChildProcess:
    """A child process and the thread that starts, reads and outlives it, so callers never wait.

    Its standard output and error go to the log. The messages have two pipes of their own. The child
    is in its own session, out of reach of the terminal's keys and signals.

    Args:
        program: what to run, before the arguments of ``child.main``.
        on_message: called with each message, on that thread.
        on_end: called last, once, with how the child ended: a clause for people.
        on_silence: called twice a second while nothing comes.
    """

    def __init__(
        self,
        program: Sequence[str],
        log: Log,
        on_message: Callable[[int, Any], None],
        on_end: Callable[[str], None],
        on_silence: Callable[[], None] = lambda: None,
    ) -> None:
        self._program = program
        self._log = log
        self._on_message = on_message
        self._on_end = on_end
        self._on_silence = on_silence
        self._killed, self._hung = "", False
        self.kernels_ran = False
        """Whether macspec's kernels ran when it crashed or hung, or it lost the GPU by them."""
        self._lock = threading.Lock()
        self._unsent = bytearray()
        self._hang_up = False
        self._wake_in, self._wake = os.pipe()
        for descriptor in (self._wake_in, self._wake):
            os.set_blocking(descriptor, False)
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="macspec engine", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The child's id; None before it starts and after it ends, when others may get its id."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    def send(self, line: bytes, *, last: bool = False) -> None:
        """Write a line as soon as the child takes it; hang up after the last one."""
        # A full pipe wakes the thread too; a closed one has no thread left.
        with self._lock, suppress(OSError):
            self._unsent += line
            self._hang_up |= last
            os.write(self._wake, b"!")

    def close(self, line: bytes, grace: float) -> None:
        """Send a last line and wait; kill the child after ``grace`` seconds."""
        self.send(line, last=True)
        self._thread.join(grace)
        if self._thread.is_alive() and self._process is not None:
            self._process.kill()
            self._thread.join(LINGER)

    def kill(self, reason: str, hung: bool = False) -> None:
        """End the child at once; ``reason`` is a clause for people; ``hung``: by its kernels."""
        self._killed, self._hung = reason, hung
        if self._process is not None and self.pid is not None:
            self._process.kill()

    def _run(self) -> None:
        reason = ""
        try:
            with ExitStack() as stack:
                reason = self._attend(stack)
        except OSError as error:
            reason = f"it could not be started ({error.strerror})"
        except Exception as error:  # Nothing may reach the terminal from here.
            reason = f"it sent an unreadable message ({brief(error)})"
        finally:
            with self._lock:
                for descriptor in (self._wake_in, self._wake):
                    os.close(descriptor)
                self._wake = self._wake_in = -1
            self._on_end(reason)

    def _attend(self, stack: ExitStack) -> str:
        """Start the child, serve its pipes until it ends, and return how it ended."""
        theirs_in, commands = _pipe(stack, ours=1)
        events, theirs_out = _pipe(stack, ours=0)
        log, output = _pipe(stack, ours=0)
        ends = (theirs_in.fileno(), theirs_out.fileno())
        process = self._process = subprocess.Popen(
            [*self._program, *map(str, ends), str(os.getpid()), FORMAT],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=ends,
            start_new_session=True,
        )
        for end in (theirs_in, theirs_out, output):
            end.close()
        self._log.begin(process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                self._serve(selector, commands, events, log)
        finally:
            try:
                process.wait(LINGER)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            status = process.returncode
            self.kernels_ran = died(process.pid, status, self._hung) or status == GPU_LOST
        if self._killed:
            return self._killed
        for _ in range(MOST):
            self._keep(log)
        if self._log.lost:
            return self._log.lost
        last = self._log.last_line
        return _ending(process.returncode) + (f" ({last})" if last else "")

    def _serve(
        self, selector: selectors.BaseSelector, commands: FileIO, events: FileIO, log: FileIO
    ) -> None:
        """Pass on messages in both directions until the child closes its end."""
        for readable in (events, log, self._wake_in):
            selector.register(readable, selectors.EVENT_READ)
        buffer = bytearray()
        while True:
            self._push(commands, selector)
            ready = {key.fileobj for key, _ in selector.select(TICK)}
            if not ready:
                self._on_silence()
            if self._wake_in in ready:
                os.read(self._wake_in, CHUNK)
            if log in ready and self._keep(log):
                selector.unregister(log)
            if events in ready:
                data = events.read(CHUNK)
                if data == b"":
                    return
                buffer += data or b""
                end = buffer.rfind(b"\n") + 1
                if len(buffer) - end > LONGEST:
                    raise ValueError("it has no end")
                for line in bytes(buffer[:end]).splitlines():
                    self._on_message(*decode(line))
                del buffer[:end]

    def _push(self, commands: FileIO, selector: selectors.BaseSelector) -> None:
        """Write as much of what is unsent as the child takes."""
        with self._lock:
            waiting = not commands.closed and commands in selector.get_map()
            while self._unsent and not commands.closed:
                try:
                    taken = commands.write(self._unsent[:CHUNK])
                except OSError:  # Nobody reads it any more.
                    taken = len(self._unsent)
                if taken is None:
                    if not waiting:
                        selector.register(commands, selectors.EVENT_WRITE)
                    return
                del self._unsent[:taken]
            if waiting:
                selector.unregister(commands)
            if self._hang_up:
                commands.close()

    def _keep(self, log: FileIO) -> bool:
        """Log a chunk of the child's output; True: that was the end."""
        data = log.read(CHUNK)
        self._log.write(data or b"")
        return data == b""


def _pipe(stack: ExitStack, ours: int) -> tuple[FileIO, FileIO]:
    """The reading and the writing end of a pipe; our end never blocks."""
    ends = os.pipe()
    os.set_blocking(ends[ours], False)
    read, write = FileIO(ends[0], "rb"), FileIO(ends[1], "wb")
    return stack.enter_context(read), stack.enter_context(write)


def _ending(status: int) -> str:
    if status >= 0:
        return f"it exited with status {status}"
    try:
        return f"it was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"it was killed by signal {-status}"
