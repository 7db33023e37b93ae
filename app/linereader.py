"""Line mode's input: typed lines, or lines from a pipe."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from macspec.errors import BadOptionError
from macspec.plaintext import neutral

PASTE = 0.03
"""Seconds within which the next line belongs to the same paste."""

MORE = ". "
"""The prompt for further lines of a message."""

Completer = Callable[[str], Sequence[str]]


class Reader:
    """Standard input, message by message.

    A backslash at the end of a line continues it. On a terminal, lines pasted together are one
    message, and Python's ``readline``, if there is one, adds editing, history and completion;
    through a pipe each line is a message.

    Args:
        complete: returns completions of a line, as whole lines.
    """

    def __init__(self, complete: Completer = lambda text: ()) -> None:
        self.interactive = sys.stdin is not None and sys.stdin.isatty()
        """Whether input comes from a terminal."""
        shown = sys.stdout is not None and sys.stdout.isatty()
        able = self.interactive and shown and os.environ.get("TERM", "") not in ("", "dumb")
        self._prompts = sys.stdout if shown else sys.stderr
        self._readline: Any = _readline(complete) if able else None

    @property
    def typed(self) -> str:
        """The line being typed, if known."""
        return "" if self._readline is None else str(self._readline.get_line_buffer())

    def remember(self, messages: Sequence[str]) -> None:
        """Add messages to the history, the newest last."""
        if self._readline is not None:
            for text in messages:
                # What came with a file may hold what a terminal would obey.
                if text.strip() and "\n" not in text and neutral(text) == text:
                    self._readline.add_history(text)

    def can_offer(self, text: str) -> bool:
        """Whether the next message can begin with this text."""
        return self._readline is not None and "\n" not in text and neutral(text) == text

    def message(self, begin: str = "") -> str | None:
        """The next message; None at the end of input.

        Args:
            begin: text to edit.

        Raises:
            KeyboardInterrupt: Ctrl+C; what was typed stays in the history.
            BadOptionError: the input is not UTF-8.
        """
        lines: list[str] = []
        try:
            while True:
                line = self._line(MORE if lines else "> ", "" if lines else begin)
                if line is None:
                    return "\n".join(lines) if lines else None
                if line.endswith("\\"):
                    lines.append(line[:-1])
                    continue
                lines.append(line)
                if not self._pasted():
                    break
        except KeyboardInterrupt:
            self.remember([*lines, self.typed])
            raise
        message = "\n".join(lines)
        self.remember([message])
        return message

    def _line(self, prompt: str, begin: str) -> str | None:
        if sys.stdin is None:
            return None
        if self._readline is not None:
            self._readline.set_startup_hook(lambda: self._readline.insert_text(begin))
            try:
                return input(prompt)
            except EOFError:
                return None
            finally:
                self._readline.set_startup_hook()
        if self.interactive and self._prompts is not None:
            print(prompt, end="", file=self._prompts, flush=True)
        line = sys.stdin.buffer.readline()
        if not line:
            return None
        try:
            return line.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise BadOptionError(
                f"a line of standard input is not UTF-8: byte 0x{line[error.start]:02x} at "
                f"position {error.start}; convert it first, for example with iconv"
            ) from None

    def _pasted(self) -> bool:
        """Whether another line arrived faster than anyone types."""
        if not self.interactive:
            return False
        with suppress(OSError, ValueError):
            ready, _, _ = select.select([sys.stdin], [], [], PASTE)
            return bool(ready)
        return False


def _readline(complete: Completer) -> Any:
    """The configured module; None: Python has none."""
    try:
        import readline
    except ImportError:
        return None

    found: list[str] = []

    def completer(text: str, number: int) -> str | None:
        if number == 0:
            # In a message, and in what is pasted, a tab is a tab.
            found[:] = complete(text) if text.startswith("/") else [f"{text}\t"]
        return found[number] if number < len(found) else None

    readline.set_auto_history(False)
    readline.set_completer(completer)
    readline.set_completer_delims("")
    libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
    return readline
