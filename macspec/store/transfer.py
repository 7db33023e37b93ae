"""Conversations as JSON and back. What comes back is checked: the file may be anybody's."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..errors import BadOptionError
from .records import FIRST_LINE, ROLES, STATES, TITLED, Chat, GenerationMetadata, Message

FORMAT = "macspec conversations"

VERSION = 1

LAST_TIME = 1e12
"""Seconds since 1970, beyond which nothing has a date."""

UID = re.compile("[0-9a-f]{32}")


def to_json(chats: Iterable[tuple[Chat, Sequence[Message]]]) -> str:
    """Conversations with all their messages, in ASCII; nothing of a text is lost."""
    entries = []
    for chat, messages in chats:
        entry = asdict(chat)
        for name in ("id", "deleted", "imported", "messages"):
            del entry[name]
        entry["messages"] = [_entry(message) for message in messages]
        entries.append(entry)
    whole = {"format": FORMAT, "version": VERSION, "chats": entries}
    return json.dumps(whole, indent=1).replace("\x7f", "\\u007f") + "\n"


def from_json(text: str) -> list[tuple[Chat, list[Message]]]:
    """The conversations in what ``to_json`` has written, for ``Store.take_in``.

    Raises:
        BadOptionError: it is something else, or damaged; with the place.
    """
    try:
        document = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadOptionError(f"it is not JSON: {error}") from None
    whole = Place(document, "it")
    if whole.get("format", str, "") != FORMAT:
        raise BadOptionError("it is not what macspec history export --format json writes")
    if whole.get("version", int) > VERSION:
        raise BadOptionError("it was written by a newer macspec; update this one")
    return [_chat(entry) for entry in whole.entries("chats")]


class Place:
    """A part of a JSON document, and where it stands."""

    def __init__(self, value: Any, name: str) -> None:
        if not isinstance(value, dict):
            raise BadOptionError(f"{name} is not an object")
        self._value: Mapping[str, Any] = value
        self.name = name

    def get(self, key: str, kinds: type | tuple[type, ...], default: Any = ...) -> Any:
        """The value of a key, of one of these types; null is none, and needs a default."""
        value = self._value.get(key)
        if value is None and default is not ...:
            return default
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise self.refusal(key)
        return value

    def one_of(self, key: str, choices: Sequence[str], default: str) -> str:
        """The value of a key, which is one of some words."""
        value = self.get(key, str, default)
        if value not in choices:
            raise self.refusal(key)
        return str(value)

    def time(self, key: str, default: Any = ...) -> float:
        """Seconds since 1970."""
        seconds = self.get(key, (int, float), default)
        if abs(seconds) > LAST_TIME:
            raise self.refusal(key)
        return float(seconds)

    def table(self, key: str) -> dict[str, Any] | None:
        """An object of plain values; None if there is none."""
        value: dict[str, Any] | None = self.get(key, dict, None)
        if not _shallow(value, 4):
            raise self.refusal(key)
        return value

    def entries(self, key: str) -> list[Place]:
        """The objects of a list."""
        values = self.get(key, list)
        return [Place(value, f"{key}[{n}] of {self.name}") for n, value in enumerate(values)]

    def inner(self, key: str) -> Place | None:
        """An object; None if there is none."""
        value = self.get(key, dict, None)
        return None if value is None else Place(value, f"{key} of {self.name}")

    def refusal(self, key: str) -> BadOptionError:
        """The error for a value that cannot be used."""
        return BadOptionError(f"{key} of {self.name} is missing or wrong")


def _entry(message: Message) -> dict[str, Any]:
    entry = asdict(message)
    del entry["chat"]
    entry["making"] = entry.pop("metadata")
    return entry


def _chat(place: Place) -> tuple[Chat, list[Message]]:
    messages: list[Message] = []
    seen: set[int] = set()
    for entry in place.entries("messages"):
        message = _message(entry)
        # Parents come first, so that the messages are a tree.
        if message.id in seen or (message.parent is not None and message.parent not in seen):
            raise entry.refusal("id" if message.id in seen else "parent")
        seen.add(message.id)
        messages.append(message)
    leaf = place.get("leaf", int, messages[-1].id if messages else None)
    if leaf is not None and leaf not in seen:
        raise place.refusal("leaf")
    made, uid = place.time("made"), place.get("uid", str, "")
    return Chat(
        id=0,
        uid=uid if UID.fullmatch(uid) else secrets.token_hex(16),
        title=place.get("title", str, ""),
        titled=place.one_of("titled", TITLED, FIRST_LINE),
        system=place.get("system", str, ""),
        sampling=place.table("sampling") or {},
        unsent=place.get("unsent", str, ""),
        leaf=leaf,
        made=made,
        changed=place.time("changed", made),
    ), messages


def _message(place: Place) -> Message:
    metadata, reason = place.inner("making"), place.get("reason", str, None)
    if reason is not None and not reason.isascii():
        raise place.refusal("reason")
    return Message(
        id=place.get("id", int),
        chat=0,
        parent=place.get("parent", int, None),
        role=place.one_of("role", ROLES, ""),
        text=place.get("text", str),
        reasoning=place.get("reasoning", str, ""),
        state=place.one_of("state", STATES, "complete"),
        reason=reason,
        made=place.time("made"),
        metadata=None if metadata is None else _metadata(metadata),
    )


def _metadata(place: Place) -> GenerationMetadata:
    return GenerationMetadata(
        model=place.get("model", str, None),
        draft=place.get("draft", str, None),
        sampling=place.table("sampling") or {},
        rule=place.get("rule", str, None),
        method=place.get("method", str, None),
        depth=place.get("depth", (int, str), None),
        seed=place.get("seed", int, None),
        stats=place.table("stats"),
        spans=_spans(place, "spans"),
        reasoning_spans=_spans(place, "reasoning_spans"),
        energy=place.table("energy"),
    )


def _spans(place: Place, key: str) -> list[tuple[int, str | None]] | None:
    spans = place.get(key, list, None)
    for span in spans or ():
        if not isinstance(span, list) or len(span) != 2:
            raise place.refusal(key)
        length, drafter = span
        if type(length) is not int or not isinstance(drafter, str | None):
            raise place.refusal(key)
    return None if spans is None else [(length, drafter) for length, drafter in spans]


def _shallow(value: object, depth: int) -> bool:
    """Whether lists and objects are nested no deeper than this."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return depth > 0 and all(_shallow(each, depth - 1) for each in inner)
    return True


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no number")
