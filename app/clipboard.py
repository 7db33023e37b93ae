"""Copying to the clipboard of the machine that the user sits at."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from macspec.errors import MacspecError
from macspec.plaintext import neutral, utf8

if TYPE_CHECKING:
    from textual.app import App

LONGEST = 74_994
"""Bytes that terminals take in one OSC 52 sequence: 100,000 characters of it."""

SCREEN_TAKES = 700
"""Characters that GNU screen passes on in one sequence."""

TIMEOUT_S = 3.0

FILE = "/copy FILE writes it to a file"

Write = Callable[[str], None]


class ClipboardError(MacspecError):
    """Nothing was copied."""


def copy(text: str, app: App[Any]) -> str:
    """Copy what the screen shows of ``text``, and say by which way, such as "pbcopy".

    Pasting within the app works in any case.

    Raises:
        ClipboardError: no way led to a clipboard.
    """
    app._clipboard = neutral(text)
    driver = app._driver
    return put(text, driver.write if driver is not None and not driver.is_headless else None)


def put(text: str, write: Write | None, environ: Mapping[str, str] | None = None) -> str:
    """As ``copy``, without an app.

    Args:
        write: writes to the terminal, as it is; None: there is none.
        environ: instead of the process's.
    """
    environ = os.environ if environ is None else environ
    data = utf8(neutral(text))
    if not _remote(environ):
        for program in _programs(environ):
            if _run(program, data, environ):
                return program[0]
    if write is None:
        raise ClipboardError(f"no program here reaches a clipboard; {FILE}")
    if len(data) > LONGEST:
        raise ClipboardError(
            f"{len(data):,} bytes are too many for the terminal's clipboard; {FILE}"
        )
    sequence = f"\x1b]52;c;{base64.b64encode(data).decode()}\a"
    around, way = _multiplexer(environ)
    for part in around(sequence):
        write(part)
    return way


def _remote(environ: Mapping[str, str]) -> bool:
    return any(environ.get(name) for name in ("SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT"))


def _programs(environ: Mapping[str, str]) -> Iterator[Sequence[str]]:
    if sys.platform == "darwin":
        yield ("pbcopy",)
    if environ.get("WAYLAND_DISPLAY"):
        yield ("wl-copy",)
    if environ.get("DISPLAY"):
        yield ("xclip", "-selection", "clipboard")
        yield ("xsel", "--clipboard", "--input")


def _run(program: Sequence[str], data: bytes, environ: Mapping[str, str]) -> bool:
    """Whether the program has taken the data."""
    path = shutil.which(program[0], path=environ.get("PATH"))
    if path is None:
        return False
    # pbcopy takes bytes for what the locale says they are.
    environ = {**environ, "LC_ALL": "en_US.UTF-8"} if program[0] == "pbcopy" else dict(environ)
    with suppress(OSError, subprocess.SubprocessError):
        # Some stay behind to serve the clipboard, and would hold a pipe open.
        done = subprocess.run(
            [path, *program[1:]],
            input=data,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environ,
            timeout=TIMEOUT_S,
            check=False,
            start_new_session=True,
        )
        return done.returncode == 0
    return False


def _multiplexer(environ: Mapping[str, str]) -> tuple[Callable[[str], Sequence[str]], str]:
    """How a sequence gets through what lies between here and the terminal, and what to call it."""
    term = environ.get("TERM", "")
    if environ.get("TMUX"):
        return _through_tmux, "OSC 52 through tmux, if allow-passthrough is on there"
    if environ.get("STY") or term.startswith("screen"):
        return _through_screen, "OSC 52 through screen"
    return lambda sequence: (sequence,), "OSC 52, where the terminal allows it"


def _through_tmux(sequence: str) -> Sequence[str]:
    inner = sequence.replace("\x1b", "\x1b\x1b")
    # The plain one is for tmux itself: with set-clipboard on, it hands it to the terminal.
    return sequence, f"\x1bPtmux;{inner}\x1b\\"


def _through_screen(sequence: str) -> Sequence[str]:
    pieces = range(0, len(sequence), SCREEN_TAKES)
    return [f"\x1bP{sequence[at : at + SCREEN_TAKES]}\x1b\\" for at in pieces]
