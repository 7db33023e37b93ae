"""The report to attach to a bug report: versions, machine, settings and logs; no text of yours."""

from __future__ import annotations

import getpass
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .config.effective import load
from .config.paths import state_folder
from .config.schema import BUILT_IN, NONE
from .errors import MacspecError, cause
from .io import write_atomic
from .models.machine import GIB, chip, pressure, unified_memory, working_set
from .plaintext import neutral, utf8
from .power.choice import check_lines
from .store import Store, store_path
from .terminal import Output

PACKAGES = ("macspec", "mlx", "mlx-lm", "textual", "transformers", "huggingface-hub", "numpy")

TERMINAL = ("TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "COLORTERM", "NO_COLOR", "LANG")

HEAD = f"{BUILT_IN} head"
"""What drafts for the built-in target, where nothing else was asked for."""

TAIL = 60
"""Last lines of each log."""

SHORTEST = 3
"""Shortest user name that is removed; a shorter one may be any word."""

TOKEN = re.compile(r"\bhf_\w{8,}|(?<=Bearer )\S+", re.ASCII)
"""What logs people in to the hub."""

PRIVATE = ("reply.system",)
"""Settings whose value is the user's own text."""

HEADER = (
    "Report of macspec. It has no text of a conversation, but may have names of models and "
    "folders: read it before you send it."
)


def report(
    output: Output | None = None, *, target: str | None = None, draft: str | None = None
) -> int:
    """Print it; arguments as for ``lines``. Returns the exit status."""
    output = output or Output()
    for line in lines(target, draft):
        output.text(f"{line}\n")
    return 0


def report_file(target: str | None, draft: str | None) -> Path:
    """Write it to a file in the state folder and return its path.

    Args:
        target, draft: the pair in use; None: the built-in one, and none.
    """
    path = state_folder() / "report.txt"
    try:
        text = "\n".join(lines(target or BUILT_IN, draft or NONE))
        write_atomic(path, utf8(text + "\n"), make_folder=True)
    except OSError as error:
        raise MacspecError(f"{path} cannot be written: {cause(error)}") from None
    return path


def lines(target: str | None = None, draft: str | None = None) -> Iterator[str]:
    """The report about a pair, None: that of the settings; a part that failed says why."""
    yield HEADER
    yield ""
    pair = [("pair", _pair(target, draft))]
    for name, text in (*_versions(), *_machine(), *pair, *_last(), *_terminal()):
        yield _homeless(f"{name:<16} {text}")
    yield ""
    yield "settings other than the defaults"
    yield from (f"  {_homeless(line)}" for line in _settings())
    for log in ("engine.log", "app.log"):
        yield ""
        yield f"the last lines of {log}"
        yield from (f"  {_homeless(line)}" for line in _tail(state_folder() / log))


def _versions() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"
    yield "Python", f"{platform.python_version()}, {sys.executable}"


def _machine() -> Iterator[tuple[str, str]]:
    yield "system", platform.platform()
    yield "chip", chip()
    memory, share = unified_memory() / GIB, working_set() / GIB
    yield "memory", f"{memory:.1f} GB, of which models may use {share:.1f}; {pressure()}"
    try:
        yield from ((label or "power", text) for label, text in check_lines())
    except Exception as error:  # a driver may raise anything
        yield "power", f"{type(error).__name__}: {error}"


def _pair(target: str | None, draft: str | None) -> str:
    if target is None:
        try:
            models = load().config.models
        except MacspecError:
            return "unknown: the settings cannot be read"
        target, draft = models.target, draft or models.draft
    return f"{target or BUILT_IN}, draft {draft or (NONE if target else HEAD)}"


def _terminal() -> Iterator[tuple[str, str]]:
    for name in TERMINAL:
        if name in os.environ:
            yield name, os.environ[name]
    try:
        size = os.get_terminal_size()
        yield "terminal", f"{size.columns}x{size.lines}"
    except OSError:
        yield "terminal", "none"


def _last() -> Iterator[tuple[str, str]]:
    """Models and settings of the last reply; nothing else of a conversation is read."""
    if not store_path().exists():
        yield "last reply", "none saved"
        return
    store = Store(store_path())
    try:
        if store.trouble is not None:
            yield "history", store.trouble
        chat = store.last_chat()
        makings = [
            turn.metadata for turn in (store.thread(chat.id) if chat else ()) if turn.metadata
        ]
    finally:
        store.close()
    if makings:
        it = makings[-1]
        yield "last target", it.model or "built-in"
        yield "last draft", it.draft or (HEAD if it.model is None else NONE)
        yield "last settings", f"method {it.method}, depth {it.depth}, rule {it.rule}"


def _settings() -> Iterator[str]:
    try:
        settings = load()
    except MacspecError as error:
        yield str(error)
        return
    for key, origin in settings.origins.items():
        if origin.rank:
            value = "(a text)" if key in PRIVATE else settings.value(key)
            yield f"{key} = {value} ({origin.name})"


def _tail(path: Path) -> list[str]:
    try:
        text = path.read_bytes()[-(2**16) :].decode(errors="replace")
    except OSError as error:
        return [f"({cause(error)})"]
    return [*_without_messages(text.splitlines())][-TAIL:] or ["(empty)"]


def _without_messages(lines: Iterable[str]) -> Iterator[str]:
    """The lines but for the messages of Rust's panics, which may quote a prompt."""
    hidden = False
    for line in lines:
        if " panicked at " in line:
            hidden = True
            yield line if line.endswith(":") else line.partition(" panicked at ")[0] + " panicked"
        elif not hidden or line.startswith(("stack backtrace:", "note: ", "---", "  File ")):
            hidden = False
            yield line


def _homeless(line: str) -> str:
    """A neutral line without the user's home folder and name, and without tokens."""
    line = TOKEN.sub("(token)", line)
    for home in {os.path.expanduser("~"), os.path.realpath(os.path.expanduser("~"))}:
        if len(home) > 1:
            line = line.replace(home, "~")
    name = _user()
    if len(name) >= SHORTEST:
        line = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "(user)", line, flags=re.IGNORECASE)
    return neutral(line)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
