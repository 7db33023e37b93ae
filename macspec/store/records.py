"""What the store holds: conversations, their messages as a tree, and the rows of both."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path, PurePath
from typing import Any

from ..errors import BadOptionError
from ..plaintext import one_line, utf8
from . import valid

USER, ASSISTANT, RAW = "user", "assistant", "raw"
ROLES = (USER, ASSISTANT, RAW)
"""``raw`` is text that was continued as it is, without a chat template."""

OPEN, COMPLETE, STOPPED, CUT_OFF = "open", "complete", "stopped", "cut off"
STATES = (OPEN, COMPLETE, STOPPED, CUT_OFF)
"""A reply is open while it streams, stopped by the user, or cut off by a crash."""

FIRST_LINE, BY_MODEL, BY_USER = "first line", "model", "user"
TITLED = (FIRST_LINE, BY_MODEL, BY_USER)
"""Where a title comes from."""

TITLE_LENGTH = 60
"""Characters of a title made from a prompt."""

TITLE_SOURCE = 2000
"""Characters of the prompt that are considered for its title."""


@dataclass(frozen=True, slots=True)
class GenerationMetadata:
    """How a reply was generated. None: unknown."""

    model: str | None = None
    """The target: an absolute folder or a hub id; None: the built-in pair's."""
    draft: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    rule: str | None = None
    """The acceptance rule."""
    method: str | None = None
    depth: int | str | None = None
    seed: int | None = None
    stats: Mapping[str, Any] | None = None
    """``ReplyStats.as_dict()``."""
    spans: Sequence[tuple[int, str | None]] | None = None
    """Who wrote the text, in order: characters, and the drafter (None: the target)."""
    reasoning_spans: Sequence[tuple[int, str | None]] | None = None
    """The same for the reasoning."""
    energy: Mapping[str, Any] | None = None
    """``ReplyEnergy.as_dict()``."""


@dataclass(frozen=True, slots=True)
class Message:
    """A turn. Siblings share a parent: other replies to a prompt, or edits of a prompt."""

    id: int
    chat: int
    parent: int | None
    role: str
    """One of ``ROLES``."""
    text: str
    reasoning: str = ""
    state: str = COMPLETE
    """One of ``STATES``."""
    reason: str | None = None
    """Why a reply ended: end, stop, length, context or interrupted; None if it has not."""
    made: float = 0.0
    """Seconds since 1970."""
    metadata: GenerationMetadata | None = None
    """None if no model wrote it."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation."""

    id: int
    uid: str
    """Survives export and import."""
    title: str
    """As given; show it with ``title_of``."""
    titled: str
    """One of ``TITLED``."""
    system: str
    sampling: Mapping[str, Any]
    """What this conversation overrides in the settings."""
    unsent: str
    """Text typed into the prompt and not sent."""
    leaf: int | None
    """The last message of the path that is shown; None while there are no messages."""
    made: float
    """Seconds since 1970."""
    changed: float
    deleted: float | None = None
    """When it was deleted."""
    imported: int | None = None
    """The last message that came from a file; up to it, metadata is not to be trusted."""
    messages: int = 0
    """On all paths."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A conversation that matches a search."""

    chat: Chat
    message: int | None
    """The best matching message; None: the title matches."""
    role: str
    """The role of that message; empty for a title."""
    excerpt: Sequence[tuple[str, bool]]
    """Pieces of the text, each with whether it matches. Untrusted, like all stored text."""


def title_of(chat: Chat) -> str:
    """A conversation's title on one line, safe to print."""
    return one_line(chat.title) or "Untitled"


def last_generated(chat: Chat, thread: Sequence[Message]) -> GenerationMetadata | None:
    """How the newest reply of a thread was generated on this machine; None: there is none.

    What an imported file names is skipped: its models must not be fetched or loaded unasked.
    """
    own = [turn.metadata for turn in thread if turn.id > (chat.imported or 0)]
    return next((it for it in reversed(own) if it is not None), None)


def spoken(thread: Sequence[Message]) -> list[list[Message]]:
    """The messages of a path as the model gets them: empty replies are left out, and messages of
    the user's that then follow each other are joined."""
    groups: list[list[Message]] = []
    for message in thread:
        if message.role == ASSISTANT and not message.text:
            continue
        if groups and message.role != ASSISTANT and groups[-1][-1].role == message.role:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


def request_messages(
    thread: Sequence[Message], system: str = "", resumed: Message | None = None
) -> list[dict[str, str]]:
    """What the engine is asked about a path, and about the reply after it that is resumed."""
    asked = [{"role": "system", "content": system}] if system else []
    groups = spoken(thread)
    for group in groups if resumed is None else [*groups, [resumed]]:
        first, text = group[0], "\n\n".join(message.text for message in group)
        role = ASSISTANT if first.role == ASSISTANT else USER
        asked.append({"role": role, "content": text})
        if first.reasoning:
            asked[-1]["reasoning"] = first.reasoning
    return asked


def forked(title: str) -> str:
    """The title of a fork: with a number from the second one on."""
    found = re.fullmatch(r"(.*) \(fork(?: (\d{1,6}))?\)", title)
    return f"{title} (fork)" if found is None else f"{found[1]} (fork {int(found[2] or 1) + 1})"


def first_line(text: str) -> str:
    """The first line with text in it, shortened to a title."""
    lines = map(one_line, utf8(text[:TITLE_SOURCE]).decode().splitlines())
    line = next((line for line in lines if line), "")
    if len(line) <= TITLE_LENGTH:
        return line
    cut = line[: TITLE_LENGTH - 1]
    words = cut.rpartition(" ")[0]
    return f"{words if len(words) > TITLE_LENGTH // 2 else cut}…"


def model_name(model: str | None) -> str:
    """A model's name for people: the last part of a folder, or the hub id."""
    if model is None:
        return "built-in"
    return one_line(PurePath(model).name if PurePath(model).is_absolute() else model)


def stored_model(model: str | None) -> str | None:
    """A model as it is stored: a folder by its absolute path, a hub id as it is."""
    if model is not None:
        with suppress(OSError, ValueError):
            if Path(model).is_dir():
                return str(Path(model).resolve())
    return model


CHAT_NAMES = (
    "id, uid, title, titled, system, sampling, unsent, leaf, made, changed, deleted, imported"
)

SELECT_CHAT = f"""
SELECT {CHAT_NAMES}, (SELECT count(*) FROM messages WHERE messages.chat = chats.id) FROM chats
"""

SELECT_MESSAGE = (
    "SELECT id, chat, parent, role, text, reasoning, state, reason, made, making FROM messages"
)

SELECT_PATH = f"""
WITH RECURSIVE up(at) AS (
    VALUES (?) UNION ALL SELECT parent FROM messages JOIN up ON id = at WHERE parent < id
)
{SELECT_MESSAGE} WHERE id IN (SELECT at FROM up) ORDER BY id
"""


CHAT_COLUMNS: tuple[Callable[[Any], Any], ...] = (
    int,
    valid.text,
    valid.text,
    valid.one_of(TITLED, BY_USER),
    valid.text,
    lambda value: valid.sampling(valid.document(value)),
    valid.text,
    valid.whole,
    valid.time,
    valid.time,
    valid.optional(valid.time),
    valid.whole,
    int,
)
"""How each column of ``SELECT_CHAT`` is read."""


def metadata_json(metadata: GenerationMetadata | None) -> str | None:
    """Metadata as its column holds it, in ASCII."""
    return None if metadata is None else json.dumps(asdict(metadata))


def select_chats(connection: sqlite3.Connection, where: str, *arguments: object) -> list[Chat]:
    """Conversations by a WHERE clause, which may go on with ORDER BY and LIMIT."""
    rows = connection.execute(f"{SELECT_CHAT} WHERE {where}", arguments)
    return [chat_of(row) for row in rows]


def select_messages(connection: sqlite3.Connection, sql: str, *arguments: object) -> list[Message]:
    """Messages by a query that selects the columns of ``SELECT_MESSAGE``."""
    return [message_of(row) for row in connection.execute(sql, arguments)]


def chat_of(row: Sequence[Any]) -> Chat:
    """The conversation of a row of ``SELECT_CHAT``, whatever the row holds."""
    return Chat(*_read(CHAT_COLUMNS, row))


def message_of(row: Sequence[Any]) -> Message:
    """The message of a row of ``SELECT_MESSAGE``, whatever the row holds."""
    message = Message(*_read(MESSAGE_COLUMNS, row))
    astray = message.parent is not None and message.parent >= message.id
    return replace(message, parent=None) if astray else message


def _read(columns: Sequence[Callable[[Any], Any]], row: Sequence[Any]) -> list[Any]:
    return [read(value) for read, value in zip(columns, row, strict=True)]


def get_chat(connection: sqlite3.Connection, id: int) -> Chat:
    """A conversation, deleted or not, or BadOptionError."""
    for chat in select_chats(connection, "id = ?", id):
        return chat
    raise BadOptionError(f"there is no conversation {id}; macspec history list shows all of them")


def get_message(connection: sqlite3.Connection, id: int) -> Message:
    """A message, or BadOptionError."""
    for message in select_messages(connection, f"{SELECT_MESSAGE} WHERE id = ?", id):
        return message
    raise BadOptionError(f"there is no message {id}")


def get_messages(connection: sqlite3.Connection, chat: int) -> list[Message]:
    """All messages of a conversation, parents before their children."""
    found = select_messages(connection, f"{SELECT_MESSAGE} WHERE chat = ? ORDER BY id", chat)
    known = {None, *(message.id for message in found)}
    return [
        message if message.parent in known else replace(message, parent=None) for message in found
    ]


def get_path(connection: sqlite3.Connection, leaf: int | None) -> list[Message]:
    """The messages from the first one to a leaf."""
    return select_messages(connection, SELECT_PATH, leaf)


def listed_chats(connection: sqlite3.Connection, limit: int = -1) -> list[Chat]:
    """Conversations with a message or unsent text, most recently changed first; -1: all."""
    used = "deleted IS NULL AND (unsent <> '' OR id IN (SELECT chat FROM messages))"
    return select_chats(connection, f"{used} ORDER BY changed DESC, id DESC LIMIT ?", limit)


def insert_chat(connection: sqlite3.Connection, chat: Chat, *, keep_id: bool = False) -> int:
    """Add a conversation without its messages and return its id.

    With ``keep_id`` that is its own, and any conversation that has it is replaced.
    """
    row = asdict(chat)
    del row["messages"]
    row.update(id=chat.id if keep_id else None, sampling=json.dumps(row["sampling"]))
    return _insert(connection, "INSERT OR REPLACE" if keep_id else "INSERT", "chats", row)


def insert_message(
    connection: sqlite3.Connection,
    message: Message,
    *,
    keep_id: bool = False,
    writer: str | None = None,
) -> int:
    """Add a message and return its id.

    With ``keep_id`` that is its own, and nothing is added if it is taken. ``writer`` is the process
    that streams an open reply.
    """
    row = {each.name: getattr(message, each.name) for each in fields(message)}
    row.update(id=message.id if keep_id else None, metadata=metadata_json(message.metadata))
    row["writer"] = writer if message.state == OPEN else None
    return _insert(connection, "INSERT OR IGNORE" if keep_id else "INSERT", "messages", row)


def update(connection: sqlite3.Connection, table: str, id: int, changes: Mapping[str, Any]) -> None:
    """Set columns of one row."""
    names = ", ".join(f"{name} = ?" for name in changes)
    values = (*map(valid.stored, changes.values()), id)
    connection.execute(f"UPDATE {table} SET {names} WHERE id = ?", values)


def _insert(connection: sqlite3.Connection, verb: str, table: str, row: Mapping[str, Any]) -> int:
    """Add a row, its values in the order of the table's columns."""
    marks, values = ", ".join("?" * len(row)), [*map(valid.stored, row.values())]
    cursor = connection.execute(f"{verb} INTO {table} VALUES ({marks})", values)
    return int(cursor.lastrowid or 0)


def metadata_of(values: Any) -> GenerationMetadata | None:
    """Metadata from its JSON, without the fields that are not valid; None: it is no object."""
    if not isinstance(values, dict):
        return None
    known = {
        name: values[name]
        for name, allows in valid.METADATA.items()
        if values.get(name) is not None and allows(values[name])
    }
    for name in known.keys() & {"spans", "reasoning_spans"}:
        known[name] = [(length, drafter) for length, drafter in known[name]]
    return GenerationMetadata(**known)


MESSAGE_COLUMNS: tuple[Callable[[Any], Any], ...] = (
    int,
    int,
    valid.whole,
    valid.one_of(ROLES, RAW),
    valid.text,
    valid.text,
    valid.one_of(STATES, CUT_OFF),
    lambda value: value if isinstance(value, str) and value.isascii() else None,
    valid.time,
    lambda value: metadata_of(valid.document(value)),
)
"""How each column of ``SELECT_MESSAGE`` is read."""
