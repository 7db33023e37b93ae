"""Export and import: conversations as JSON and back, and as Markdown to read.

Imported files are untrusted, so every field is checked.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..config.schema import setting_of
from ..errors import BadOptionError, brief, cause
from ..io import write_atomic
from ..plaintext import neutral, utf8
from . import records, valid
from .records import Chat, GenerationMetadata, Message

FORMAT = "macspec conversations"

VERSION = 1

LARGEST_FILE = 128 * 2**20
"""Bytes of an imported file."""

MOST_VALUES = 10_000_000
"""In an imported file; each may take a hundred times the memory of its text."""

FEWER = "export fewer conversations at a time"

UID = re.compile("[0-9a-f]{32}")

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")


def format_of(name: str | None) -> str:
    """The format of an exported file by its name: json or markdown."""
    return "json" if name is not None and Path(name).suffix.lower() == ".json" else "markdown"


def write_new(name: str, text: str) -> Path:
    """Write a new file that only the user can read, or BadOptionError."""
    path = Path(name)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(utf8(text))
    except FileExistsError:
        raise BadOptionError(f"{path} already exists; choose another name") from None
    except (OSError, ValueError) as error:
        raise BadOptionError(f"cannot write {path}: {cause(error)}") from None
    return path


def write_file(name: str, text: str) -> Path:
    """Replace a file as a whole, or BadOptionError."""
    path = Path(name)
    try:
        write_atomic(path, utf8(text), durable=True)
    except (OSError, ValueError) as error:
        raise BadOptionError(f"cannot write {path}: {cause(error)}") from None
    return path


def to_json(chats: Iterable[tuple[Chat, Sequence[Message]]]) -> str:
    """Conversations with all their messages, in ASCII and without loss."""
    entries = []
    for chat, messages in chats:
        entry = asdict(chat)
        for name in ("id", "deleted", "imported", "messages"):
            del entry[name]
        ids = [message.id for message in messages]
        entry["leaf"] = chat.leaf if chat.leaf in ids else max(ids, default=None)
        entry["messages"] = [_entry(message) for message in messages]
        entries.append(entry)
    whole = {"format": FORMAT, "version": VERSION, "chats": entries}
    return json.dumps(whole, indent=1).replace("\x7f", "\\u007f") + "\n"


def from_json(text: str) -> list[tuple[Chat, list[Message]]]:
    """The conversations of an exported file, for ``Store.import_chats``, or BadOptionError."""
    if sum(map(text.count, ",[{")) > MOST_VALUES:
        raise BadOptionError(f"it has over {MOST_VALUES} values: {FEWER}")
    try:
        document = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise BadOptionError(f"not valid JSON: {brief(error)}") from None
    whole = Node(document)
    if whole.get("format", str, "") != FORMAT:
        raise BadOptionError("not a file of macspec history export --format json")
    if whole.get("version", int) > VERSION:
        raise BadOptionError("written by a newer macspec; update macspec")
    return [_chat(entry) for entry in whole.entries("chats")]


class Node:
    """An object of a JSON document, and its path there."""

    def __init__(self, value: Any, path: str = "") -> None:
        if not isinstance(value, dict):
            raise BadOptionError(f"{path or 'the document'} is not an object")
        self._value: Mapping[str, Any] = value
        self._path = path

    def get(
        self,
        key: str,
        kinds: type | tuple[type, ...],
        default: Any = ...,
        valid: Callable[[Any], bool] = lambda value: True,
    ) -> Any:
        """A valid value of one of these types; null counts as missing."""
        value = self._value.get(key)
        if value is None and default is not ...:
            return default
        if not isinstance(value, kinds) or isinstance(value, bool) or not valid(value):
            raise self.refusal(key)
        return value

    def checked(self, key: str, right: Callable[[Any], bool]) -> Any:
        """A value that passes a check; null counts as missing."""
        value = self._value.get(key)
        if value is not None and not right(value):
            raise self.refusal(key)
        return value

    def time(self, key: str, default: Any = ...) -> float:
        return float(self.get(key, (int, float), default, valid.is_time))

    def entries(self, key: str) -> list[Node]:
        values = self.get(key, list)
        return [Node(value, f"{self._at(key)}[{n}]") for n, value in enumerate(values)]

    def inner(self, key: str) -> Node | None:
        value = self.get(key, dict, None)
        return None if value is None else Node(value, self._at(key))

    def refusal(self, key: str) -> BadOptionError:
        return BadOptionError(f"{self._at(key)} is missing or invalid")

    def _at(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key


def _entry(message: Message) -> dict[str, Any]:
    entry = asdict(message)
    del entry["chat"]
    entry["making"] = entry.pop("metadata")
    return entry


def _chat(node: Node) -> tuple[Chat, list[Message]]:
    messages: list[Message] = []
    seen: set[int] = set()
    for entry in node.entries("messages"):
        message = _message(entry)
        # Parents come first, so that the messages are a tree.
        if message.id in seen or (message.parent is not None and message.parent not in seen):
            raise entry.refusal("id" if message.id in seen else "parent")
        seen.add(message.id)
        messages.append(message)
    leaf = node.get("leaf", int, messages[-1].id if messages else None)
    if leaf is not None and leaf not in seen:
        raise node.refusal("leaf")
    made, uid = node.time("made"), node.get("uid", str, "")
    return Chat(
        id=0,
        uid=uid if UID.fullmatch(uid) else secrets.token_hex(16),
        title=node.get("title", str, ""),
        titled=node.get("titled", str, records.FIRST_LINE, records.TITLED.__contains__),
        system=node.get("system", str, ""),
        sampling=node.get("sampling", dict, {}, _samples),
        unsent=node.get("unsent", str, ""),
        leaf=leaf,
        made=made,
        changed=node.time("changed", made),
    ), messages


def _message(node: Node) -> Message:
    making = node.inner("making")
    return Message(
        id=node.get("id", int),
        chat=0,
        parent=node.get("parent", int, None),
        role=node.get("role", str, valid=records.ROLES.__contains__),
        text=node.get("text", str),
        reasoning=node.get("reasoning", str, ""),
        state=node.get("state", str, records.COMPLETE, records.STATES.__contains__),
        reason=node.get("reason", str, None, str.isascii),
        made=node.time("made"),
        metadata=None if making is None else _metadata(making),
    )


def _metadata(node: Node) -> GenerationMetadata | None:
    values = {name: node.checked(name, right) for name, right in valid.METADATA.items()}
    return records.metadata_of(values)


def _samples(values: dict[str, Any]) -> bool:
    """Whether the settings that a conversation overrides have values that settings allow."""
    known = {name for name in values if setting_of(f"sampling.{name}") is not None}
    return valid.sampling(values).keys() == known and valid.numbers(values)


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} is too large")
    return number


def markdown(chat: Chat, thread: Sequence[Message]) -> str:
    """The messages of one path to read, each under a heading, with control characters shown."""
    parts = [f"# {records.title_of(chat)}", f"*{valid.day(chat.made)}*"]
    if chat.system:
        parts += ["## System", whole(neutral(chat.system))]
    for message in thread:
        parts.append(f"## {heading(message)}")
        if message.reasoning:
            parts.append(_quoted(neutral(message.reasoning).strip("\n")))
        parts.append(whole(neutral(message.text).strip("\n")))
    return "\n\n".join(part for part in parts if part) + "\n"


def heading(message: Message) -> str:
    """Who wrote a message, when, and the state of a reply that is not complete."""
    who = "Text" if message.role == records.RAW else "You"
    if message.role == records.ASSISTANT:
        metadata = message.metadata
        who = records.model_name(metadata.model if metadata is not None else None)
    state = "" if message.state == records.COMPLETE else f", {message.state}"
    return f"{who} ({valid.day(message.made)}{state})"


def whole(text: str) -> str:
    """``text`` with its last code block closed, so that what follows is outside of it."""
    fence = ""
    for line in text.splitlines():
        found = FENCE.match(line)
        if found is None:
            continue
        marks, rest = found.groups()
        if not fence:
            # Backticks on the same line make it inline code.
            fence = "" if marks[0] == "`" and "`" in rest else marks
        elif marks.startswith(fence) and not rest.strip():
            fence = ""
    return f"{text}\n{fence}" if fence else text


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def copy(connection: sqlite3.Connection, chat: Chat, messages: Sequence[Message]) -> int:
    """Add a conversation under new ids and return its own; parents come before children."""
    id = records.insert_chat(connection, replace(chat, leaf=None, imported=None))
    ids: dict[int | None, int | None] = {None: None}
    for each in messages:
        moved = replace(_ended(each), chat=id, parent=ids[each.parent])
        ids[each.id] = records.insert_message(connection, moved)
    last = chat.imported
    foreign = [ids[each.id] for each in messages if last is not None and each.id <= last]
    changes = {"leaf": ids[chat.leaf], "imported": foreign[-1] if foreign else None}
    records.update(connection, "chats", id, changes)
    return id


def _ended(message: Message) -> Message:
    """A message as it is copied: an open reply counts as cut off."""
    return replace(message, state=records.CUT_OFF) if message.state == records.OPEN else message


def add_copies(
    connection: sqlite3.Connection, new: Sequence[tuple[Chat, Sequence[Message]]]
) -> list[Chat | None]:
    """Add imported conversations and return each as it is here; None: it was here already."""
    added: list[Chat | None] = []
    for incoming, turns in new:
        last = max((each.id for each in turns), default=None)
        incoming = replace(incoming, deleted=None, imported=last)
        for here in records.select_chats(connection, "uid = ?", incoming.uid):
            if _same(turns, records.get_messages(connection, here.id)):
                records.update(connection, "chats", here.id, {"deleted": None})
                added.append(None)
                break
            incoming = replace(incoming, uid=secrets.token_hex(16))
        else:
            added.append(records.get_chat(connection, copy(connection, incoming, turns)))
    return added


def _same(some: Sequence[Message], others: Sequence[Message]) -> bool:
    """Whether two trees differ only in ids; an open reply counts as cut off."""

    def normal(messages: Sequence[Message]) -> list[Message]:
        places: dict[int | None, int | None] = {None: None}
        places.update((each.id, place) for place, each in enumerate(messages))
        return [
            replace(_ended(each), id=place, chat=0, parent=places[each.parent])
            for place, each in enumerate(messages)
        ]

    return normal(some) == normal(others)
