"""The child's two ends: commands that come at any time, and events that never hold up a round."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from .codec import decode, encode
from .messages import Ask, Close, Stop, Tune

HELD = 4 * 2**20
"""Bytes of events that wait for a reader before decoding waits for it too."""

LEAVE = 1.0
"""Seconds to end in order once the parent has said so."""

LOOK = 0.02
"""Seconds between two looks at a reader who is late."""


class Inbox:
    """Commands, read by a thread of its own, which ends the process when the parent is gone."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._commands: deque[tuple[int, Any]] = deque()
        self._stopped: set[int] = set()
        self._arrived = threading.Condition()
        self.closing = False
        """Whether the parent wants this process to end."""
        self.expendable = True
        """Whether it may end at once, because there is nothing to keep."""
        threading.Thread(target=self._read, name="commands", daemon=True).start()

    def __bool__(self) -> bool:
        return bool(self._commands) or self.closing

    def take(self) -> tuple[int, Any] | None:
        """The next command and its call; None if there is none."""
        with self._arrived:
            return self._commands.popleft() if self._commands else None

    def take_quick(self) -> tuple[int, Any] | None:
        """The next of those commands that need not wait for a reply's end."""
        if not self._commands:
            return None
        with self._arrived:
            for item in self._commands:
                if isinstance(item[1], Tune | Ask):
                    self._commands.remove(item)
                    return item
        return None

    def wait(self, timeout: float | None = None) -> None:
        """Until there is a command, or it is time to end."""
        with self._arrived:
            if not self:
                self._arrived.wait(timeout)

    def stopped(self, call: int) -> bool:
        """Whether a call is to end early."""
        return self.closing or call in self._stopped

    def _read(self) -> None:
        with open(self._descriptor, "rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                call, command = decode(line)
                with self._arrived:
                    if isinstance(command, Stop):
                        self._stopped.add(command.call)
                    elif isinstance(command, Close):
                        self.closing = True
                    else:
                        self._commands.append((call, command))
                    self._arrived.notify_all()
        if self.closing and not self.expendable:
            time.sleep(LEAVE)
        os._exit(0)


class Outbox:
    """Events. A reader who is late finds them all; a round waits only when ``HELD`` bytes do."""

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
        """Wait until less than ``HELD`` bytes wait, or there is a reason not to."""
        while len(self._held) >= HELD and not give_up():
            self._wait()

    def drain(self) -> None:
        """Wait until everything is sent; the inbox sees to it that this has an end."""
        while self._held:
            self._wait()

    def _wait(self) -> None:
        select.select([], [self._descriptor], [], LOOK)
        self.flush()
