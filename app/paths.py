"""Completion of paths: after an ``@``, and in commands that take one."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from .actions import BY_SLASH
from .slash import Completion

OFFERED = 50
"""Most names to offer as completions."""

LOOKED_AT = 5000
"""Most entries of a folder to search for them."""

BEGUN = re.compile(r"""(?<!\S)@(?:(["'])([^"'\n]*)|([^\s"'@]\S*)?)\Z""")

ARGUMENT = re.compile(r"/([A-Za-z]\w*)\s+((?:.*\s)?)(\S*)", re.DOTALL)
"""A command, what precedes its last word, and that."""


def mentioned(typed: str) -> Sequence[Completion]:
    """File names for an ``@`` at the end of the typed text."""
    match = BEGUN.search(typed)
    if match is None:
        return ()
    quote, path = match[1] or "", match[2] or match[3] or ""
    head, names = _entries(path)
    found = []
    for name, is_folder in names:
        text = _quoted(head + name, is_folder, quote)
        if text is not None and text.rstrip() != typed[match.start() :]:
            found.append(
                Completion(text, name + "/" * is_folder, "" if is_folder else "file", match.start())
            )
    return found


def argument(typed: str) -> Sequence[Completion]:
    """Folders for the path at the end of a command that takes one. What begins as a path may be
    that of a model. Where a new file is to be named, Enter leaves the name as it is typed."""
    match = ARGUMENT.fullmatch(typed)
    action = None if match is None else BY_SLASH.get(match[1].lower())
    if match is None or action is None or not action.path:
        return ()
    model = action.path == "model"
    path = match[3] if model else match[2] + match[3]
    if model and not path.startswith(("/", "~/", "./", "../")):
        return ()
    head, names = _entries(path)
    if any(head + name == path for name, _ in names):
        return ()  # It is there, so that Enter means it.
    before = typed.removesuffix(path) + head
    return [
        Completion(f"{before}{name}/", f"{name}/", by_enter=model and path != head)
        for name, is_folder in names
        if is_folder and not (model and re.search(r"\s", name))
    ]


def _entries(path: str) -> tuple[str, list[tuple[str, bool]]]:
    """What of a path is whole, and the entries there that match the rest of it."""
    head, slash, tail = path.rpartition("/")
    try:
        return head + slash, _names(Path(head + slash).expanduser(), tail)
    except (OSError, ValueError, RuntimeError):
        return head + slash, []


def _names(folder: Path, begun: str) -> list[tuple[str, bool]]:
    """Matching entries of a folder, each with whether it is a folder."""
    wanted = begun.casefold()
    with os.scandir(folder) as entries:
        found = [
            (entry.name, _is_folder(entry))
            for entry in islice(entries, LOOKED_AT)
            if wanted in entry.name.casefold()
            and (begun.startswith(".") or not entry.name.startswith("."))
            and entry.name.isprintable()
        ]
    found.sort(key=lambda each: (not each[0].casefold().startswith(wanted), each[0].casefold()))
    return found[:OFFERED]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        return entry.is_dir()
    return False


def _quoted(path: str, is_folder: bool, quote: str) -> str | None:
    """A path as typed after an @; None: it contains both kinds of quotes."""
    if not quote and re.search(r"""[\s"']""", path):
        quote = '"'
    if quote in path and quote:
        quote = "'" if quote == '"' else '"'
        if quote in path:
            return None
    return f"@{quote}{path}/" if is_folder else f"@{quote}{path}{quote} "
