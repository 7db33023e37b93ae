"""A terminal for tests: it runs a program in a pseudo-terminal and shows what a person would see.

Nothing is waited for but what the screen shows or the program does.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte
from pyte.screens import Char

TIMEOUT_S = 60.0
"""What nothing takes even on a busy machine: after it the test has failed."""

QUIET_S = 0.005
"""A frame comes without such a pause in it."""

KEYS = {
    "enter": "\r",
    "escape": "\x1b",
    "tab": "\t",
    "shift+tab": "\x1b[Z",
    "backspace": "\x7f",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "end": "\x1b[F",
    "home": "\x1b[H",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "alt+enter": "\x1b\r",
    "shift+enter": "\x1b[13;2u",
    "space": " ",
    **{f"ctrl+{chr(code + 96)}": chr(code) for code in range(1, 27)},
}
"""What a terminal sends for a key."""

PIECES = re.compile(
    rb"\x1b\[\?(?P<modes>[\d;]+)(?P<switch>[hl])"
    rb"|\x1b\[[<=>?][\d;]*[\x20-\x2f]*[@-~]"  # the keyboard protocol and questions to the terminal
    rb"|\x1b\[[\d;]*[\x20-\x2f]+[@-~]"
    rb"|\x1b[P_^X](?:[^\x1b]|\x1b[^\\])*\x1b\\"
    rb"|(?P<command>\x1b\][^\x07\x1b]*(?:\x07|\x1b\\))"
    rb"|(?P<rest>\x1b(?:\[[<=>?]?[\d;]*[\x20-\x2f]*|[P_^X\]](?:[^\x1b\x07]|\x1b(?!\\))*)?\Z)"
)
"""What pyte does not know and would print, or what has to be noticed; and an unfinished end."""

ALTERNATE = 1049


class Terminal:
    """A program and its screen.

    Args:
        command: the program and its arguments.
        environ: all of its environment beside the terminal's own.
        size: columns and rows.
        term: its name; ``xterm`` has 16 colours.
        folder: where the program is.
    """

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        size: tuple[int, int] = (120, 36),
        term: str = "xterm-256color",
        folder: Path | None = None,
    ) -> None:
        columns, rows = size
        self._main, self._alternate = pyte.Screen(columns, rows), pyte.Screen(columns, rows)
        self._streams = {id(it): pyte.ByteStream(it) for it in (self._main, self._alternate)}
        self._screen = self._main
        self._unfinished = b""
        self.modes: set[int] = set()
        """The private modes that are on."""
        self.commands: list[bytes] = []
        """The operating system commands (OSC) that came, such as what goes to the clipboard."""
        self.output = b""
        """All that came."""
        self._us, self._its = os.openpty()
        self._set_size(columns, rows)
        self.before = termios.tcgetattr(self._its)
        """How the terminal was set up before the program began."""
        self.process = subprocess.Popen(
            command,
            stdin=self._its,
            stdout=self._its,
            stderr=self._its,
            env={**environ, "TERM": term},
            cwd=folder,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                self.process.send_signal(number)
                with suppress(AssertionError):
                    self.ended(5)
        os.close(self._us)
        os.close(self._its)

    # What is seen.

    @property
    def lines(self) -> list[str]:
        """The rows of the screen without blanks at their ends."""
        columns = range(self._screen.columns)
        rows = (self._screen.buffer[row] for row in range(self._screen.lines))
        return ["".join([row[column].data for column in columns]).rstrip() for row in rows]

    @property
    def text(self) -> str:
        """The whole screen."""
        return "\n".join(self.lines)

    @property
    def full_screen(self) -> bool:
        """Whether a program has taken the whole screen."""
        return self._screen is self._alternate

    def where(self, text: str) -> tuple[int, int]:
        """The column and row of a text that is on the screen."""
        for row, line in enumerate(self.lines):
            if text in line:
                return line.index(text), row
        raise AssertionError(f"no {text!r} on the screen:\n{self.text}")

    def cell(self, column: int, row: int) -> Char:
        """A character and how it looks."""
        return self._screen.buffer[row][column]

    def look(self, text: str) -> Char:
        """How the first character of a text looks."""
        return self.cell(*self.where(text))

    def colours(self) -> set[str]:
        """The names of all colours on the screen; six hexadecimal digits where it is no name."""
        return {
            colour
            for row in range(self._screen.lines)
            for column in range(self._screen.columns)
            for colour in self.cell(column, row)[1:3]
        }

    # What is done.

    def type(self, text: str) -> None:
        """Send characters."""
        self._send(text.encode())

    def press(self, *keys: str) -> None:
        """Press keys, by their names or as the characters that they are."""
        for key in keys:
            self._send(KEYS.get(key, key).encode())

    def freeze(self) -> None:
        """Take nothing from the program any more, so that it has to wait."""
        termios.tcflow(self._its, termios.TCOOFF)

    def thaw(self) -> None:
        """Go on."""
        termios.tcflow(self._its, termios.TCOON)

    def paste(self, text: str) -> None:
        """Paste as a terminal does for a program that has asked to be told."""
        assert 2004 in self.modes, "nobody has asked for pastes"
        self._send(f"\x1b[200~{text}\x1b[201~".encode())

    def resize(self, columns: int, rows: int) -> None:
        """Give the window another size. What is on the screen then was drawn for it."""
        for screen in (self._main, self._alternate):
            screen.resize(rows, columns)
        self._alternate.reset()
        self._set_size(columns, rows)

    def signal(self, number: int) -> None:
        """Send a signal to the program alone."""
        self.process.send_signal(number)

    # What is waited for.

    def wait_for(
        self, true: Callable[[], object] | str, timeout: float = TIMEOUT_S, what: str = ""
    ) -> None:
        """Wait until a text is on the screen, or a condition holds."""
        holds = true if callable(true) else lambda: true in self.text
        deadline = time.monotonic() + timeout
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what or true} did not happen; the screen:\n{self.text}")
            if not self._take_all(0.05) and self.process.poll() is not None and not holds():
                raise AssertionError(
                    f"{what or true} did not happen before the program ended "
                    f"({self.process.returncode}); the screen:\n{self.text}"
                )

    def ended(self, timeout: float = TIMEOUT_S) -> int:
        """Wait for the program's end, and return its status."""
        deadline = time.monotonic() + timeout
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it goes on; the screen:\n{self.text}"
            self._take(0.05)
        while self._take(0):
            pass
        assert self.process.returncode is not None
        return self.process.returncode

    def assert_restored(self) -> None:
        """The terminal is as it was before the program."""
        assert not self.full_screen
        assert self.modes <= {7, 25}, f"modes that are still on: {self.modes}"
        assert termios.tcgetattr(self._its)[:6] == self.before[:6]

    def _send(self, data: bytes) -> None:
        while data:
            self._take(0)
            data = data[os.write(self._us, data[:512]) :]

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._us, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _take_all(self, timeout: float) -> bool:
        """Read until a frame is likely to be whole; whether there was anything."""
        some = self._take(timeout)
        while some and self._take(QUIET_S):
            pass
        return some

    def _take(self, timeout: float) -> bool:
        """Read what is there; whether there was anything."""
        if not select.select([self._us], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self._us, 65536)
        except OSError:  # Nobody has the other side open.
            return False
        self.output += data
        self._show(self._unfinished + data)
        return bool(data)

    def _show(self, data: bytes) -> None:
        self._unfinished = b""
        at = 0
        for piece in PIECES.finditer(data):
            self._streams[id(self._screen)].feed(data[at : piece.start()])
            at = piece.end()
            if piece["switch"]:
                for mode in map(int, piece["modes"].split(b";")):
                    self._switch(mode, piece["switch"] == b"h")
            elif piece["command"]:
                self.commands.append(piece["command"])
            elif piece["rest"] is not None:
                self._unfinished = piece["rest"]
        self._streams[id(self._screen)].feed(data[at:])

    def _switch(self, mode: int, on: bool) -> None:
        (self.modes.add if on else self.modes.discard)(mode)
        if mode == ALTERNATE:
            self._screen = self._alternate if on else self._main
            self._alternate.reset()


def descendants(pid: int) -> dict[int, str]:
    """The processes that a process has begun, and those that they have, with their commands."""
    table = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 2) for line in table.splitlines()]
    found: dict[int, str] = {}
    wanted = {pid}
    while wanted:
        new = {int(row[0]): row[2] for row in rows if len(row) > 2 and int(row[1]) in wanted}
        found |= new
        wanted = set(new)
    return found


def macspec(*arguments: str) -> list[str]:
    """The command that runs macspec as it is here."""
    return [sys.executable, "-m", "macspec", *arguments]
