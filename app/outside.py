"""Writing the prompt in the user's own editor."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from macspec.errors import MacspecError
from macspec.plaintext import utf8

VARIABLES = ("VISUAL", "EDITOR")

AT_ONCE_S = 0.4
"""An editor that ends sooner, with nothing changed, has opened a window and not waited."""

KEPT = "the prompt is as it was"


class EditorError(MacspecError):
    """The editor brought no text back; the prompt stays as it was."""


def written(text: str, environ: Mapping[str, str] | None = None) -> str:
    """``text`` as the user's editor leaves it; waits until it ends, on this terminal.

    The file is the user's alone. It stays where its text could not be taken over.

    Raises:
        EditorError: there is no editor, or no text came back.
    """
    before = utf8(text)
    try:
        folder = Path(tempfile.mkdtemp(prefix="macspec-"))  # 0700
    except OSError as error:
        raise EditorError(f"no file for an editor: {_why(error)}; {KEPT}") from None
    path = folder / "prompt.md"
    at_once = False
    try:
        _create(path, before)
        began = time.monotonic()
        _edit(path, os.environ if environ is None else environ)
        after = path.read_bytes()
        at_once = after == before and time.monotonic() - began < AT_ONCE_S
        if at_once:
            raise EditorError(
                "the editor did not wait: give it its option for that, as in EDITOR='code --wait'"
            )
        result = after.decode()
    except (OSError, UnicodeDecodeError, EditorError) as error:
        if at_once or _bytes(path) not in (None, before):
            raise EditorError(f"{_why(error)}; {KEPT}, and what you write is in {path}") from None
        shutil.rmtree(folder, ignore_errors=True)
        raise EditorError(f"{_why(error)}; {KEPT}") from None
    shutil.rmtree(folder, ignore_errors=True)
    return result if text.endswith("\n") else result.removesuffix("\n")


def attempt(text: str) -> str | EditorError:
    """As ``written``, for where an exception must not get out."""
    try:
        return written(text)
    except EditorError as error:
        return error


def _edit(path: Path, environ: Mapping[str, str]) -> None:
    commands = (environ.get(name, "").strip() for name in VARIABLES)
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
    """Ctrl+C goes to every process of the terminal, and here it is meant for the editor."""
    before = signal.signal(signal.SIGINT, lambda *_: None)  # SIG_IGN would be handed on to it
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _create(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "the editor left no text in UTF-8"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _bytes(path: Path) -> bytes | None:
    with suppress(OSError):
        return path.read_bytes()
    return None
