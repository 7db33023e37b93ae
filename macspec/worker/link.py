"""One child process: its pipes, and the thread that looks after them."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from io import FileIO
from typing import Any

from ..errors import brief
from .codec import FORMAT, decode
from .log import Log

CHUNK = 2**16

MOST = 16
"""Chunks of a dead child's output that are still read; a pipe holds less."""

LINGER = 1.0
"""Seconds that a child has to end once it has closed its pipe."""


class Link:
    """A child process. One thread starts it, reads it and outlives it; callers never wait.

    Its standard output and error go to the log. The protocol has two pipes of its own, and the
    child is in a session of its own, so no key and no signal of the terminal reaches it.

    Args:
        program: what to run; the descriptors to read and write, this process's id and the
            protocol's ``FORMAT`` are added to it.
        log: where it writes.
        on_message: called with each message, on that thread.
        on_end: called once, last, with how the child ended: a clause for people.
    """

    def __init__(
        self,
        program: Sequence[str],
        log: Log,
        on_message: Callable[[Link, int, Any], None],
        on_end: Callable[[Link, str], None],
    ) -> None:
        self._program = program
        self._log = log
        self._on_message = on_message
        self._on_end = on_end
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
        """The child's id; None before it has one, and when it has ended: others may get it then."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    def send(self, line: bytes) -> None:
        """Have a line written as soon as the child takes it."""
        with self._lock:
            self._unsent += line
            self._awake()

    def close(self, line: bytes, grace: float) -> None:
        """Send a last line, hang up, and wait; after ``grace`` seconds the child is killed."""
        with self._lock:
            self._unsent += line
            self._hang_up = True
            self._awake()
        self._thread.join(grace)
        if self._thread.is_alive() and self._process is not None:
            self._process.kill()
            self._thread.join(LINGER)

    def _awake(self) -> None:
        # A full pipe wakes as well as another byte would; a closed one has nobody to wake.
        with suppress(OSError):
            os.write(self._wake, b"!")

    def _run(self) -> None:
        reason = ""
        try:
            with ExitStack() as stack:
                reason = self._attend(stack)
        except OSError as error:
            reason = f"it could not be started ({error.strerror})"
        except Exception as error:  # Nothing may reach the terminal from here.
            reason = f"its messages could not be read ({brief(error)})"
        finally:
            with self._lock:
                for descriptor in (self._wake_in, self._wake):
                    os.close(descriptor)
                self._wake = self._wake_in = -1
            self._on_end(self, reason)

    def _attend(self, stack: ExitStack) -> str:
        """Start the child, serve its pipes until it ends, and say how it did."""
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
        for _ in range(MOST):
            self._keep(log)
        last = self._log.last_line
        return _ending(process.returncode) + (f" ({last})" if last else "")

    def _serve(
        self, selector: selectors.BaseSelector, commands: FileIO, events: FileIO, log: FileIO
    ) -> None:
        """Pass everything on in both directions, until the child closes its end."""
        for readable in (events, log, self._wake_in):
            selector.register(readable, selectors.EVENT_READ)
        buffer = bytearray()
        while True:
            self._push(commands, selector)
            ready = {key.fileobj for key, _ in selector.select()}
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
                for line in bytes(buffer[:end]).splitlines():
                    self._on_message(self, *decode(line))
                del buffer[:end]

    def _push(self, commands: FileIO, selector: selectors.BaseSelector) -> None:
        """Write what the child takes of what is unsent."""
        with self._lock:
            waiting = not commands.closed and commands in selector.get_map()
            while self._unsent and not commands.closed:
                try:
                    taken = commands.write(self._unsent[:CHUNK])
                except OSError:  # There is nobody to read it any more.
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
        """Log a chunk of what the child wrote; whether that was the end of it."""
        data = log.read(CHUNK)
        self._log.write(data or b"")
        return data == b""


def _pipe(stack: ExitStack, ours: int) -> tuple[FileIO, FileIO]:
    """The reading and the writing end of a pipe, of which ours never blocks."""
    ends = os.pipe()
    os.set_blocking(ends[ours], False)
    read, write = FileIO(ends[0], "rb"), FileIO(ends[1], "wb")
    return stack.enter_context(read), stack.enter_context(write)


def _ending(status: int) -> str:
    if status >= 0:
        return f"it ended with status {status}"
    try:
        return f"it was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"it was killed by signal {-status}"
