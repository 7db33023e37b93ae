"""A program in a pseudo-terminal, driven by keys and watched by the bytes that it draws.

No screen is kept: what is waited for are texts that stand nowhere else. So nothing beside the
standard library is needed, and reading takes next to nothing of the machine that is measured.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from macspec.errors import MacspecError
from macspec.plaintext import one_line

PATIENCE = 120.0
"""Seconds after which what is waited for will not come."""

GRACE = 3.0
"""Seconds in which a program that is asked to leave has to."""

CONTROL = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P_^X][^\x07\x1b]*(?:\x07|\x1b\\)|[@-OQ-WYZ=>78])"
)
"""Control sequences as programs write them."""

LONGEST = 4096
"""Bytes of a control sequence whose end may be missing."""

KEPT = 2**18
"""Bytes of text that are looked through while something is waited for."""


class Terminal:
    """A program that has a terminal of its own.

    Args:
        command: the program and its arguments.
        environ: all of its environment beside the terminal's own.
        size: columns and rows.
    """

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        size: tuple[int, int] = (120, 36),
    ) -> None:
        self._us, self._its = os.openpty()
        columns, rows = size
        fcntl.ioctl(self._us, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._text = bytearray()
        """What was drawn, without the places where it stands."""
        self._new = 0
        """Where in it begins what was drawn since the last key."""
        self._unfinished = b""
        self.began = time.perf_counter()
        """When the program was started."""
        self.process = subprocess.Popen(
            command,
            stdin=self._its,
            stdout=self._its,
            stderr=self._its,
            env={**environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            start_new_session=True,
            preexec_fn=_take_terminal,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                if self.process.poll() is None:
                    self.process.send_signal(number)
                    with suppress(MacspecError):
                        self.ended(GRACE)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            os.close(self._us)
            os.close(self._its)

    def press(self, keys: str) -> float:
        """Send keys as a terminal does; the time of it.

        What is waited for next is looked for in what is drawn from now on.
        """
        while self._take(0):
            pass
        self._new = len(self._text)
        data, now = keys.encode(), time.perf_counter()
        while data:
            self._take(0)
            data = data[os.write(self._us, data[:512]) :]
        return now

    def wait_for(self, text: str, *, ever: bool = False, patience: float = PATIENCE) -> float:
        """Wait until a text is drawn; the time at which its bytes came.

        Args:
            ever: it may have been drawn before the last key.

        Raises:
            MacspecError: it never was.
        """
        wanted = text.encode()
        return self.wait_until(
            lambda: self._text.find(wanted, 0 if ever else self._new) >= 0, repr(text), patience
        )

    def wait_until(
        self, true: Callable[[], object], what: str, patience: float = PATIENCE
    ) -> float:
        """Wait until something holds, which is looked at whenever something was drawn and twenty
        times a second; the time of it.

        Raises:
            MacspecError: it never did, or the program has ended.
        """
        deadline = time.monotonic() + patience
        while not true():
            if time.monotonic() > deadline:
                raise MacspecError(f"the app never came to {what}: {self._last()}")
            if not self._take(0.05) and self.process.poll() is not None and not true():
                raise MacspecError(
                    f"the app ended with status {self.process.returncode} before {what}: "
                    f"{self._last()}"
                )
        return time.perf_counter()

    def look_on(self, seconds: float) -> None:
        """Let the program go on."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self._take(left)

    def ended(self, patience: float = PATIENCE) -> float:
        """Wait for the program's end; the time of it.

        Raises:
            MacspecError: it goes on.
        """
        deadline = time.monotonic() + patience
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                raise MacspecError(f"the app does not end: {self._last()}")
            self._take(0.002)
        return time.perf_counter()

    def _last(self) -> str:
        """The end of what was drawn, for an error."""
        text = bytes(self._text[-1000:]).decode(errors="replace")
        return " ".join(one_line(text).split())[-200:] or "it drew nothing"

    def _take(self, timeout: float) -> bool:
        """Read what is there; whether there was anything."""
        if not select.select([self._us], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self._us, 2**16)
        except OSError:  # Nobody has the other side open.
            return False
        new = self._unfinished + data
        last = new.rfind(b"\x1b")
        whole = last < 0 or CONTROL.match(new, last) or len(new) - last > LONGEST
        end = len(new) if whole else last
        self._text += CONTROL.sub(b"", new[:end])
        self._unfinished = new[end:]
        if (over := len(self._text) - KEPT) > 0:
            del self._text[:over]
            self._new = max(self._new - over, 0)
        return bool(data)


def _take_terminal() -> None:
    """Make standard input the controlling terminal of a new session."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
