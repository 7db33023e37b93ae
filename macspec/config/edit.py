"""Changing the settings file: comments and layout stay, and a broken file is never written."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import BadOptionError
from .file import checked, entries_of, text_of
from .index import SECTIONS, SETTINGS, Setting

HEADER = """\
# Settings of macspec. The command line and MACSPEC_SECTION_NAME in the environment come before
# them; `macspec config` shows what holds and why. What follows a # has no effect.
"""


def change_file(path: Path, setting: Setting, value: Any) -> None:
    """Set one entry to a TOML value, or remove it where the value is None.

    Raises:
        BadOptionError: the value is not allowed, or the file is broken as it is or cannot be
            written; it is then left alone.
    """
    path = path.resolve()  # where it is a link, the file it leads to
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(path.parent):
            text = text_of(path)
            wanted = {key: entry.value for key, entry in entries_of(text, path).items()}
            if value is None and wanted.pop(setting.key, None) is None:
                return
            if value is not None:
                wanted[setting.key] = checked(setting, value)
            changed = _changed(text or HEADER, setting, value)
            if not _says(changed, wanted, path):
                raise BadOptionError(
                    f"{path} is laid out in a way that cannot be changed from here; "
                    "macspec config edit opens it"
                )
            _replace(path, changed)
    except OSError as error:
        raise BadOptionError(f"{path} cannot be written: {error.strerror or error}") from None


def template() -> str:
    """A new file: every setting as a comment, with what it does and its default."""
    lines = [HEADER]
    section = ""
    for setting in SETTINGS.values():
        if setting.kind.says.startswith("a list of tables"):
            continue
        head, _, name = setting.key.partition(".")
        if head != section:
            section = head
            lines.append(f"\n[{head}]\n# {SECTIONS[head].__doc__}\n")
        shown = setting.example if setting.default is None else setting.default
        lines.append(f"\n# {setting.about}\n# ({setting.kind.says})\n# {name} = {toml(shown)}\n")
    lines.append("\n[keys]\n# Keys of the app by action, where they are not the usual ones.\n")
    return "".join(lines)


def toml(value: Any) -> str:
    """A value as TOML."""
    import tomlkit

    return str(tomlkit.item(value).as_string())


def create_file(path: Path) -> None:
    """Write the template where there is no file yet.

    Raises:
        BadOptionError: it cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(path.parent):
            if not path.exists():
                _replace(path.resolve(), template())
    except OSError as error:
        raise BadOptionError(f"{path} cannot be written: {error.strerror or error}") from None


def _changed(text: str, setting: Setting, value: Any) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    section, _, name = setting.key.partition(".")
    if value is None:
        holder: Any = document[section] if name else document
        del holder[name or section]
        return tomlkit.dumps(document)
    if section not in document:
        document.add(section, tomlkit.table())
    table: Any = document[section]
    inline = isinstance(table, tomlkit.items.InlineTable)
    if name not in table and not inline and f"# {setting.about}\n" not in text:
        table.add(tomlkit.comment(setting.about))
    table[name] = value
    return tomlkit.dumps(document)


def _says(text: str, wanted: dict[str, Any], path: Path) -> bool:
    with suppress(BadOptionError):
        return {key: entry.value for key, entry in entries_of(text, path).items()} == wanted
    return False


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else changes the folder's settings meanwhile."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str) -> None:
    """Write the whole file or nothing."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            os.chmod(name, path.stat().st_mode & 0o777)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
