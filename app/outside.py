"""Other programs: the clipboard and the user's editor."""

from __future__ import annotations

import base64
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from macspec.errors import MacspecError, cause
from macspec.plaintext import neutral, utf8

if TYPE_CHECKING:
    from textual.app import App

LONGEST = 74_994
"""Most bytes in an OSC 52 sequence: terminals accept 100,000 characters of base64."""

SCREEN_TAKES = 700
"""Most characters that GNU screen passes on in one sequence."""

TIMEOUT_S = 3.0

FILE = "/copy FILE writes it to a file"

Write = Callable[[str], None]


class ClipboardError(MacspecError):
    """Nothing was copied."""


def copy(text: str, app: App[Any]) -> str:
    """Copy a text as the screen shows it; returns by which way, such as "pbcopy".

    Pasting within the app works even where ClipboardError says that no clipboard can be reached.
    """
    app._clipboard = neutral(text)
    driver = app._driver
    return put(text, driver.write if driver is not None and not driver.is_headless else None)


def put(text: str, write: Write | None, environ: Mapping[str, str] | None = None) -> str:
    """As ``copy``, without an app.

    Args:
        write: writes raw text to the terminal; None: there is none.
        environ: replaces the process's environment.
    """
    environ = os.environ if environ is None else environ
    data = utf8(neutral(text))
    if not any(environ.get(name) for name in ("SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT")):
        for program in _programs(environ):
            if _run(program, data, environ):
                return program[0]
    if write is None:
        raise ClipboardError(f"no clipboard tool found; {FILE}")
    if len(data) > LONGEST:
        raise ClipboardError(
            f"{len(data):,} bytes are too many for the terminal's clipboard; {FILE}"
        )
    sequence = f"\x1b]52;c;{base64.b64encode(data).decode()}\a"
    parts, way = _wrapped(sequence, environ)
    for part in parts:
        write(part)
    return way


def _programs(environ: Mapping[str, str]) -> Iterator[Sequence[str]]:
    if sys.platform == "darwin":
        yield ("pbcopy",)
    if environ.get("WAYLAND_DISPLAY"):
        yield ("wl-copy",)
    if environ.get("DISPLAY"):
        yield ("xclip", "-selection", "clipboard")
        yield ("xsel", "--clipboard", "--input")


def _run(program: Sequence[str], data: bytes, environ: Mapping[str, str]) -> bool:
    """Whether the program accepted the data."""
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


def _wrapped(sequence: str, environ: Mapping[str, str]) -> tuple[Sequence[str], str]:
    """A sequence in parts that pass the multiplexer, and a description of that way."""
    if environ.get("TMUX"):
        inner = sequence.replace("\x1b", "\x1b\x1b")
        # The plain one is for tmux itself: with set-clipboard on, it hands it to the terminal.
        parts = [sequence, f"\x1bPtmux;{inner}\x1b\\"]
        return parts, "OSC 52 through tmux, if its allow-passthrough is on"
    if environ.get("STY") or environ.get("TERM", "").startswith("screen"):
        pieces = range(0, len(sequence), SCREEN_TAKES)
        parts = [f"\x1bP{sequence[at : at + SCREEN_TAKES]}\x1b\\" for at in pieces]
        return parts, "OSC 52 through screen"
    return [sequence], "OSC 52, if the terminal allows it"


AT_ONCE_S = 0.4
"""An editor that ends sooner without a change has opened a window and not waited."""

KEPT = "the prompt is unchanged"


class EditorError(MacspecError):
    """The editor returned no text; the prompt is unchanged."""


def written(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Have ``text`` edited in the user's editor, on this terminal, and return the result.

    Only the user can read the file. It is kept if its text could not be read back.

    Raises:
        EditorError: the editor cannot be started, or returned no text.
    """
    before = utf8(text)
    try:
        folder = Path(tempfile.mkdtemp(prefix="macspec-"))  # 0700
    except OSError as error:
        raise EditorError(f"cannot create a file for the editor: {_why(error)}; {KEPT}") from None
    path = folder / "prompt.md"
    at_once = False
    try:
        path.touch(0o600)
        path.write_bytes(before)
        began = time.monotonic()
        _edit(path, os.environ if environ is None else environ)
        after = path.read_bytes()
        at_once = after == before and time.monotonic() - began < AT_ONCE_S
        if at_once:
            raise EditorError(
                "the editor did not wait; use its option for that, such as EDITOR='code --wait'"
            )
        result = after.decode()
    except (OSError, UnicodeDecodeError, EditorError) as error:
        if at_once or _bytes(path) not in (None, before):
            raise EditorError(f"{_why(error)}; {KEPT}, and your text is in {path}") from None
        shutil.rmtree(folder, ignore_errors=True)
        raise EditorError(f"{_why(error)}; {KEPT}") from None
    shutil.rmtree(folder, ignore_errors=True)
    return result if text.endswith("\n") else result.removesuffix("\n")


def attempt(text: str) -> str | EditorError:
    """As ``written``, but returns the error."""
    try:
        return written(text)
    except EditorError as error:
        return error


def _edit(path: Path, environ: Mapping[str, str]) -> None:
    commands = (environ.get(name, "").strip() for name in ("VISUAL", "EDITOR"))
    editor = next(filter(None, commands), "vi")
    try:
        with _interrupts_are_its():
            status = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        raise EditorError(
            f"cannot start the editor {editor!r}: {_why(error)}; set EDITOR"
        ) from None
    if status:
        raise EditorError(f"the editor ended with status {status}")


@contextmanager
def _interrupts_are_its() -> Iterator[None]:
    """Ignore Ctrl+C, which every process of the terminal gets: it is meant for the editor."""
    before = signal.signal(signal.SIGINT, lambda *_: None)  # SIG_IGN would be handed on to it
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "the editor saved text that is not UTF-8"
    return cause(error)


def _bytes(path: Path) -> bytes | None:
    with suppress(OSError):
        return path.read_bytes()
    return None
