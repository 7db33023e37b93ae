"""Reading the settings file, with the line of every mistake."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..errors import BadOptionError
from .index import SECTIONS, SETTINGS, Setting, setting_of


@dataclass(frozen=True, slots=True)
class Entry:
    """A value that the file sets."""

    value: Any
    line: int | None
    """Counted from 1; None where it could not be told."""


def read_file(path: Path) -> dict[str, Entry]:
    """What a settings file sets, by key; nothing where there is no file.

    Raises:
        BadOptionError: it cannot be read, is no TOML, or has an unknown key or a value that is
            not allowed; with the line.
    """
    return entries_of(text_of(path), path)


def checked(setting: Setting, value: Any, where: str = "") -> Any:
    """The setting's value from a TOML value.

    Args:
        where: stands before the message.

    Raises:
        BadOptionError: it is not allowed.
    """
    try:
        return setting.kind.check(value)
    except ValueError:
        raise refusal(setting, value, where) from None


def refusal(setting: Setting, value: Any, where: str = "") -> BadOptionError:
    """The error for a value that is not allowed."""
    return BadOptionError(f"{where}{setting.key} is {value!r}; it must be {setting.kind.says}")


def unknown(key: str, where: str = "") -> BadOptionError:
    """The error for a key that is none, with the one that may be meant."""
    return BadOptionError(f"{where}there is no setting {key}; {_meant(key)}")


def _meant(key: str) -> str:
    last = key.rpartition(".")[2]
    same = [each for each in SETTINGS if each.rpartition(".")[2] == last]
    begun = [each for each in SETTINGS if each.startswith(key)]
    near = same or begun or get_close_matches(key, [*SETTINGS, *SECTIONS, "keys"], n=1)
    return f"did you mean {near[0]}?" if near else "macspec config shows them all"


def text_of(path: Path) -> str:
    """The file's text, empty where there is none; BadOptionError where it cannot be read."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise BadOptionError(f"{path}, line {line}: not UTF-8") from None
    except OSError as error:
        raise BadOptionError(f"{path} cannot be read: {error.strerror or error}") from None


def entries_of(text: str, path: Path) -> dict[str, Entry]:
    """What a text sets, as ``read_file``; ``path`` is for the errors."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadOptionError(f"{path}{_located(str(error), text)}") from None
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
            entries[key] = Entry(checked(setting, value, _at(path, line)), line)
    return entries


def _at(path: Path, line: int | None) -> str:
    return f"{path}: " if line is None else f"{path}, line {line}: "


def _located(message: str, text: str) -> str:
    """tomllib says the place in brackets at the end."""
    found = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", message)
    if found is None:
        return f": {message}"
    line = int(found[2]) if found[2] else text.rstrip("\n").count("\n") + 1
    return f", line {line}: {found[1]}"


def _line(text: str, section: str, name: str) -> int | None:
    """Where an entry stands: ``name`` under its section's heading, or both with a dot.

    tomllib does not tell. A look-alike inside a text of several lines may be taken for it.
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
