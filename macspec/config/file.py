"""The settings file: read with the line of every mistake, and changed without losing a comment."""

from __future__ import annotations

import fcntl
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..errors import BadOptionError, brief, cause, quoted
from ..io import private_folder, read_regular, write_atomic
from .schema import OLD_KEYS, SECTIONS, SETTINGS, Setting, setting_of

LONGEST = 2**20
"""Bytes of a settings file."""

DEEPEST = 500
"""Dots in a word."""

HEADER = """\
# Settings of macspec. The command line and MACSPEC_SECTION_NAME in the environment take precedence
# over them; `macspec config` shows what is in effect and why. Lines that start with # are ignored.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value in the file."""

    value: Any
    line: int | None
    """Counted from 1; None: unknown."""


def read_file(path: Path) -> dict[str, Entry]:
    """The values in a settings file, by key; none if there is no file.

    Raises:
        BadOptionError: it cannot be read, is not TOML, or has an unknown key or a value that is
            not allowed; with the line.
    """
    return entries_of(text_of(path), path)


def checked(setting: Setting, value: Any, where: str = "") -> Any:
    """The setting's value from a TOML value, or BadOptionError that begins with ``where``."""
    try:
        return setting.kind.check(value)
    except ValueError:
        raise refusal(setting, value, where) from None


def refusal(setting: Setting, value: Any, where: str = "") -> BadOptionError:
    """The error for a value that is not allowed."""
    shown = quoted(repr(value))
    return BadOptionError(f"{where}{setting.key} is {shown}; it must be {setting.kind.says}")


def unknown(key: str, where: str = "") -> BadOptionError:
    """The error for an unknown key, with the one that may be meant."""
    last = key.rpartition(".")[2]
    same = [each for each in SETTINGS if each.rpartition(".")[2] == last]
    begun = [each for each in SETTINGS if each.startswith(key)]
    near = same or begun or get_close_matches(key, [*SETTINGS, *SECTIONS, "keys"], n=1)
    meant = f"did you mean {near[0]}?" if near else "macspec config lists them all"
    return BadOptionError(f"{where}there is no setting {quoted(key)}; {meant}")


def text_of(path: Path) -> str:
    """The file's text, empty if there is none; BadOptionError if it cannot be read."""
    try:
        return read_regular(path, LONGEST).decode()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise BadOptionError(f"{path}, line {line}: not UTF-8") from None
    except OSError as error:
        raise BadOptionError(f"{path} cannot be read: {cause(error)}") from None


def entries_of(text: str, path: Path) -> dict[str, Entry]:
    """The values in a text, as ``read_file``; ``path`` is for the errors."""
    words = text.split()
    if words.count(".") > DEEPEST or any(word.count(".") > DEEPEST for word in words):
        # tomllib takes time and memory by the square of a key's parts.
        raise BadOptionError(f"{path}: a key or a value has over {DEEPEST} dots in a row")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadOptionError(f"{path}{_located(brief(error), text)}") from None
    except RecursionError:
        raise BadOptionError(f"{path}: its values are nested too deeply") from None
    entries = {}
    for section, table in document.items():
        inner = isinstance(table, dict)
        if (section in SECTIONS or section == "keys") != inner and section != "pairs":
            where = _at(path, _line(text, section, "") or _line(text, "", section))
            if inner or section not in (*SECTIONS, "keys"):
                raise unknown(section, where)
            raise BadOptionError(f"{where}{section} is a section: write [{section}] above its keys")
        for name, value in table.items() if inner else [("", table)]:
            key = f"{section}.{name}" if inner else section
            line = _line(text, section, name)
            setting = setting_of(key)
            if setting is None:
                raise unknown(key, _at(path, line))
            entry = Entry(checked(setting, value, _at(path, line)), line)
            if key == setting.key or setting.key not in entries:
                entries[setting.key] = entry  # the new name takes precedence over an old one
    return entries


def _at(path: Path, line: int | None) -> str:
    return f"{path}: " if line is None else f"{path}, line {line}: "


def _located(message: str, text: str) -> str:
    """A message of tomllib, with the line in front in place of the end."""
    found = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", message)
    if found is None:
        return f": {message}"
    line = int(found[2]) if found[2] else text.rstrip("\n").count("\n") + 1
    return f", line {line}: {found[1]}"


def _line(text: str, section: str, name: str) -> int | None:
    """The line of an entry: ``name`` under its section's heading, or both with a dot.

    tomllib does not tell. A look-alike inside a multi-line text may be mistaken for it.
    """

    def key(*parts: str) -> str:
        return r"\s*\.\s*".join(rf"""["']?{re.escape(part)}["']?""" for part in parts if part)

    heading = re.compile(rf"\s*\[\[?\s*{key(section)}\s*\]")
    under = re.compile(rf"\s*{key(name)}\s*[.=]") if name else heading
    dotted = re.compile(rf"\s*{key(section, name)}\s*[.=]")
    inline = re.compile(rf"\s*{key(section)}\s*=.*[{{,]\s*{key(name)}\s*=")
    current = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("["):
            current = heading.match(line) is not None
            if current and not name:
                return number
        elif under.match(line) if current else dotted.match(line) or inline.match(line):
            return number
    return None


def change_file(path: Path, setting: Setting, value: Any) -> None:
    """Set one entry to a TOML value, or remove it if the value is None.

    Raises:
        BadOptionError: the value is not allowed, or the file is broken or cannot be written; it
            is then unchanged.
    """
    path = path.resolve()  # a link stays a link
    with _changing(path):
        text = text_of(path)
        wanted = _values(text, path)
        if value is None and wanted.pop(setting.key, None) is None:
            return
        if value is not None:
            wanted[setting.key] = checked(setting, value)
        changed = _changed(text or HEADER, setting, value)
        with suppress(BadOptionError):
            if _values(changed, path) == wanted:
                write_atomic(path, changed, keep_mode=True, durable=True)
                return
        raise BadOptionError(
            f"the layout of {path} cannot be changed automatically; change it with "
            "macspec config edit"
        )


def template() -> str:
    """A new file: every setting commented out, with what it does and its default."""
    lines = [HEADER]
    section = ""
    for setting in SETTINGS.values():
        head, _, name = setting.key.partition(".")
        if not name:
            continue
        if head != section:
            section = head
            lines.append(f"\n[{head}]\n# {SECTIONS[head].__doc__}\n")
        shown = setting.example if setting.default is None else setting.default
        lines.append("\n" + "".join(f"# {line}\n" for line in setting.explained()))
        lines.append(f"# {name} = {toml(shown)}\n")
    lines.append("\n[keys]\n# Keys of the app by action, where they are not the defaults.\n")
    return "".join(lines)


def toml(value: Any) -> str:
    """A value as TOML."""
    import tomlkit

    return str(tomlkit.item(value).as_string())


def create_file(path: Path) -> None:
    """Write the template if there is no file yet, or BadOptionError."""
    with _changing(path):
        if not path.exists():
            write_atomic(path.resolve(), template(), keep_mode=True, durable=True)


def _changed(text: str, setting: Setting, value: Any) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    section, _, name = setting.key.partition(".")
    earlier = [old.partition(".")[2] for old, new in OLD_KEYS.items() if new == setting.key]
    if value is None:
        holder: Any = document[section] if name else document
        for each in [it for it in (name or section, *earlier) if it in holder]:
            del holder[each]
        return tomlkit.dumps(document)
    if section not in document:
        document.add(section, tomlkit.table())
    table: Any = document[section]
    name = next((each for each in (name, *earlier) if each in table), name)
    inline = isinstance(table, tomlkit.items.InlineTable)
    if name not in table and not inline and f"# {setting.about}\n" not in text:
        table.add(tomlkit.comment(setting.about))
    table[name] = value
    return tomlkit.dumps(document)


def _values(text: str, path: Path) -> dict[str, Any]:
    return {key: entry.value for key, entry in entries_of(text, path).items()}


@contextmanager
def _changing(path: Path) -> Iterator[None]:
    """Hold a lock, so that nobody else changes the folder's settings meanwhile."""
    try:
        private_folder(path.parent)
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
    except OSError as error:
        raise BadOptionError(f"{path} cannot be written: {cause(error)}") from None
