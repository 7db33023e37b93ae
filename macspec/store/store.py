"""Conversations on disk: one SQLite file, which several processes may use at once."""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..config.paths import data_folder
from ..errors import BadOptionError
from ..plaintext import one_line
from . import records, transfer, valid
from .database import PATIENCE, Database
from .mirror import MemoryMirror
from .records import Chat, GenerationMetadata, Hit, Message, get_chat, get_message, update
from .search import search
from .streaming import OpenReply, Writers
from .tidy import purge, tidy


def store_path() -> Path:
    """This user's conversations."""
    return data_folder() / "chats" / "chats.db"


class Store:
    """Conversations, for any thread.

    Where the file cannot be used, conversations are kept in memory and ``trouble`` says why. That
    may happen at any time and loses nothing that this process works on. An unknown id raises
    ``BadOptionError``, and then nothing is changed. Without a path there is only memory, which is
    no trouble.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._mirror, self._clock = MemoryMirror(), clock
        self._database = Database(path, self._mirror.restore, patience)
        self._read, self._write = self._database.read, self._database.write
        self._writers = Writers(path.parent) if path is not None else None
        tidy(self._database, self._writers, self._clock())

    @property
    def trouble(self) -> str | None:
        """Why nothing is being saved, in one line; None while it is."""
        return self._database.trouble

    def close(self) -> None:
        """Close the file. A reply that is still open counts as cut off from now on."""
        self._database.close()
        if self._writers is not None:
            self._writers.leave()

    # Conversations.

    def new_chat(self, *, system: str = "", sampling: Mapping[str, Any] | None = None) -> Chat:
        """Start a conversation. It is listed once it has a message or unsent text."""
        now, uid = self._clock(), secrets.token_hex(16)
        new = Chat(0, uid, "", records.FIRST_LINE, system, sampling or {}, "", None, now, now)

        def insert(connection: sqlite3.Connection) -> Chat:
            return get_chat(connection, records.insert_chat(connection, new))

        return self._mirrored(self._write(insert))

    def chat(self, id: int) -> Chat:
        """A conversation, deleted or not."""
        return self._read(lambda connection: get_chat(connection, id))

    def chats(self, limit: int = -1) -> list[Chat]:
        """Conversations, most recently changed first; -1: all."""
        return self._read(lambda connection: records.listed_chats(connection, limit))

    def deleted_chats(self, limit: int = -1) -> list[Chat]:
        """Conversations that ``undo`` can restore, most recently deleted first; -1: all."""
        where = "deleted IS NOT NULL ORDER BY deleted DESC, id DESC LIMIT ?"
        return self._read(lambda connection: records.select_chats(connection, where, limit))

    def last_chat(self, without: Sequence[str] = ()) -> Chat | None:
        """The most recently changed conversation that can be continued; ``without``: uids of those
        to leave out."""
        raw = f"SELECT chat FROM messages WHERE role = '{records.RAW}'"
        marks = ", ".join("?" * len(without))
        usable = f"deleted IS NULL AND leaf IS NOT NULL AND id NOT IN ({raw})"
        where = f"{usable} AND uid NOT IN ({marks}) ORDER BY changed DESC, id DESC LIMIT 1"
        found = self._read(lambda connection: records.select_chats(connection, where, *without))
        return found[0] if found else None

    def last_models(self) -> dict[int, str | None]:
        """The target of each conversation's newest reply, by conversation; None: built-in."""
        newest = "SELECT max(id) FROM messages WHERE making IS NOT NULL GROUP BY chat"
        model = "CASE WHEN json_valid(making) THEN json_extract(making, '$.model') END"
        query = f"SELECT chat, {model} FROM messages WHERE id IN ({newest})"
        found = self._database.read_apart(lambda connection: connection.execute(query).fetchall())
        return {id: None if name is None else str(name) for id, name in found}

    def rename(self, id: int, title: str) -> Chat:
        if not one_line(title):
            raise BadOptionError("the title is empty")
        return self._set(id, title=title, titled=records.BY_USER)

    def entitle(self, id: int, title: str) -> Chat:
        """Set a title that the model gave, unless the user has given one meanwhile."""
        chat = self.chat(id)
        if chat.titled == records.BY_USER:
            return chat
        return self._set(id, title=title, titled=records.BY_MODEL)

    def set_system(self, id: int, system: str) -> Chat:
        return self._set(id, system=system)

    def set_sampling(self, id: int, sampling: Mapping[str, Any]) -> Chat:
        """Set what a conversation overrides in the settings, as JSON can hold it."""
        return self._set(id, sampling=json.dumps(dict(sampling)))

    def set_unsent(self, id: int, text: str) -> Chat:
        """Set the text that is typed and not sent."""
        return self._set(id, unsent=text)

    def set_leaf(self, id: int, leaf: int | None) -> Chat:
        """Show the path that ends at a message."""

        def show(connection: sqlite3.Connection) -> Chat:
            if leaf is not None and get_message(connection, leaf).chat != id:
                raise BadOptionError(f"message {leaf} is not in conversation {id}")
            update(connection, "chats", id, {"leaf": leaf})
            return get_chat(connection, id)

        return self._mirrored(self._write(show))

    def fork(self, leaf: int) -> Chat:
        """Copy everything up to a message into a new conversation."""
        now, uid = self._clock(), secrets.token_hex(16)

        def copy(connection: sqlite3.Connection) -> Chat:
            path = records.get_path(connection, get_message(connection, leaf).id)
            old = get_chat(connection, path[-1].chat)
            title = records.forked(records.title_of(old))
            new = replace(old, uid=uid, title=title, titled=records.BY_USER, unsent="", leaf=leaf)
            new = replace(new, changed=now, deleted=None)
            return get_chat(connection, transfer.copy(connection, new, path))

        return self._mirrored(self._write(copy))

    def delete(self, *ids: int) -> list[Chat]:
        """Delete conversations; they can be restored for thirty days."""
        now = self._clock()

        def mark(connection: sqlite3.Connection) -> list[Chat]:
            chats = [get_chat(connection, id) for id in ids]
            for chat in chats:
                update(connection, "chats", chat.id, {"deleted": now})
            return chats

        return self._write(mark)

    def undo(self) -> list[Chat]:
        """Restore the conversations of the last deletion, or BadOptionError."""

        def restore(connection: sqlite3.Connection) -> list[Chat]:
            last = "deleted = (SELECT max(deleted) FROM chats)"
            chats = records.select_chats(connection, last)
            for chat in chats:
                update(connection, "chats", chat.id, {"deleted": None})
            return chats

        chats = self._write(restore)
        if not chats:
            raise BadOptionError("there is nothing to restore")
        return chats

    def come_back(self, chat: Chat, path: Sequence[Message]) -> Chat:
        """The conversation as it is now, for someone who writes to it: restored if it was deleted;
        if it was removed for good, a copy of what they have of it, under new ids."""
        uid = secrets.token_hex(16)

        def restore(connection: sqlite3.Connection) -> Chat:
            for it in records.select_chats(connection, "id = ? AND uid = ?", chat.id, chat.uid):
                if it.deleted is not None:
                    update(connection, "chats", it.id, {"deleted": None})
                return get_chat(connection, it.id)
            leaf = path[-1].id if path else None
            new = replace(chat, uid=uid, leaf=leaf, deleted=None, imported=None)
            return get_chat(connection, transfer.copy(connection, new, path))

        return self._mirrored(self._write(restore))

    def take_back(self, id: int) -> None:
        """Remove a message that was never answered, with what follows it, and show what was before
        it."""

        def remove(connection: sqlite3.Connection) -> None:
            message = get_message(connection, id)
            below = (
                "WITH RECURSIVE down(at) AS (VALUES (?) UNION ALL "
                "SELECT id FROM messages JOIN down ON parent = at) "
                "DELETE FROM messages WHERE id IN (SELECT at FROM down)"
            )
            connection.execute(below, (id,))
            changes: dict[str, Any] = {"leaf": message.parent}
            chat = get_chat(connection, message.chat)
            if not chat.messages and chat.titled == records.FIRST_LINE:
                changes["title"] = ""
            update(connection, "chats", chat.id, changes)

        self._write(remove)
        self._mirror.forget(id)

    def purge(self, *ids: int) -> list[Chat]:
        """Remove conversations from the disk for good."""

        def remove(connection: sqlite3.Connection) -> list[Chat]:
            chats = [get_chat(connection, id) for id in ids]
            purge(connection, ids)
            return chats

        chats = self._write(remove)
        self._mirror.drop(ids)
        return chats

    def search(self, query: str, limit: int = 50) -> list[Hit]:
        """Conversations with these words in their title or in one message, best first.

        A word matches as the beginning of a word, a quoted phrase exactly. Without any such match,
        every text that contains the query as typed matches. Writers never wait for a search.
        """
        return self._database.read_apart(lambda connection: search(connection, query, limit))

    def export(self, ids: Iterable[int], form: str) -> str:
        """Conversations as ``json`` (everything) or ``markdown`` (the shown paths, to read)."""
        chats = [self.chat(id) for id in ids]
        if form == "json":
            return transfer.to_json((chat, self.messages(chat.id)) for chat in chats)
        return "\n---\n\n".join(transfer.markdown(chat, self.thread(chat.id)) for chat in chats)

    def import_chats(self, new: Sequence[tuple[Chat, Sequence[Message]]]) -> list[Chat | None]:
        """Add conversations under new ids, all or none; None: exactly this one is here already."""
        return self._write(lambda connection: transfer.add_copies(connection, new))

    # Messages.

    def message(self, id: int) -> Message:
        return self._read(lambda connection: get_message(connection, id))

    def messages(self, chat: int) -> list[Message]:
        """All messages of a conversation, parents before their children."""
        return self._read(lambda connection: records.get_messages(connection, chat))

    def thread(self, chat: int, leaf: int | None = None) -> list[Message]:
        """The messages from the first one to a leaf; None: the leaf that is shown."""

        def walk(connection: sqlite3.Connection) -> tuple[Chat, list[Message]]:
            it = get_chat(connection, chat)
            path = records.get_path(connection, it.leaf if leaf is None else leaf)
            return it, [message for message in path if message.chat == chat]

        it, path = self._read(walk)
        self._mirror.keep(it, path)
        return path

    def families(self, chat: int) -> dict[int | None, list[int]]:
        """The messages of a conversation by their parent, oldest first."""
        query = "SELECT id, parent FROM messages WHERE chat = ? ORDER BY id"
        found: dict[int | None, list[int]] = {}
        for id, parent in self._read(lambda each: each.execute(query, (chat,)).fetchall()):
            above = parent if isinstance(parent, int) and parent < id else None
            found.setdefault(above, []).append(id)
        return found

    def siblings(self, id: int) -> list[int]:
        """The messages with a message's parent, itself included, oldest first."""
        it = self.message(id)
        return self.families(it.chat).get(it.parent, [])

    def newest_leaf(self, id: int) -> int:
        """The end of the newest path through a message."""
        below = "SELECT max(id) FROM messages WHERE parent = ? AND id > parent"

        def descend(connection: sqlite3.Connection) -> int:
            at = get_message(connection, id).id
            while (newest := connection.execute(below, (at,)).fetchone()[0]) is not None:
                at = newest
            return at

        return self._read(descend)

    def prompts(self, limit: int, longest: int = 20_000) -> list[str]:
        """The user's last prompts of all conversations, newest last, none over ``longest``."""
        query = (
            "SELECT messages.text FROM messages JOIN chats ON chats.id = chat "
            f"WHERE role = '{records.USER}' AND deleted IS NULL "
            "AND messages.id > coalesce(imported, 0) AND length(messages.text) <= ? "
            "ORDER BY messages.id DESC LIMIT ?"
        )
        found = self._read(lambda each: each.execute(query, (longest, limit)).fetchall())
        return [valid.restored(text) for (text,) in reversed(found)]

    def add(self, chat: int, parent: int | None, text: str, role: str = records.USER) -> Message:
        """Add a turn after a parent (None: as a first turn), and show it."""
        return self._add(Message(0, chat, parent, role, text, made=self._clock()))

    def reply(
        self, chat: int, parent: int, metadata: GenerationMetadata | None = None
    ) -> OpenReply:
        """Begin a reply to a message, and show it; ``metadata``: what is known already."""
        new = Message(0, chat, parent, records.ASSISTANT, "", state=records.OPEN)
        new = replace(new, made=self._clock(), metadata=metadata)
        return self._streaming(self._add(new))

    def resume(self, id: int) -> OpenReply:
        """Continue a reply that has ended: what is appended follows its text."""
        writer = self._writer()

        def reopen(connection: sqlite3.Connection) -> tuple[Chat, list[Message]]:
            path = records.get_path(connection, get_message(connection, id).id)
            if path[-1].role != records.ASSISTANT or path[-1].state == records.OPEN:
                raise BadOptionError(f"message {id} is not a reply that can be continued")
            changes = {"state": records.OPEN, "reason": None, "writer": writer}
            update(connection, "messages", id, changes)
            return get_chat(connection, path[-1].chat), path

        chat, path = self._write(reopen)
        self._mirror.keep(chat, path)
        return self._streaming(path[-1])

    def set_metadata(self, id: int, metadata: GenerationMetadata) -> Message:
        """Replace the metadata of a reply that has ended."""

        def put(connection: sqlite3.Connection) -> Message:
            update(connection, "messages", id, {"making": records.metadata_json(metadata)})
            return get_message(connection, id)

        message = self._write(put)
        self._mirror.keep(self.chat(message.chat), [message])
        return message

    def _add(self, new: Message) -> Message:
        writer = self._writer() if new.state == records.OPEN else None

        def insert(connection: sqlite3.Connection) -> tuple[Chat, list[Message]]:
            chat = get_chat(connection, new.chat)
            if new.parent is not None and get_message(connection, new.parent).chat != chat.id:
                raise BadOptionError(f"message {new.parent} is not in conversation {chat.id}")
            id = records.insert_message(connection, new, writer=writer)
            changes: dict[str, Any] = {"leaf": id, "changed": new.made, "deleted": None}
            if not chat.title and chat.titled == records.FIRST_LINE:
                changes["title"] = records.first_line(new.text)
            update(connection, "chats", chat.id, changes)
            known = new.parent in self._mirror
            path = [replace(new, id=id)] if known else records.get_path(connection, id)
            return get_chat(connection, chat.id), path

        chat, path = self._write(insert)
        self._mirror.keep(chat, path)
        return path[-1]

    def _set(self, id: int, **changes: Any) -> Chat:
        def set_fields(connection: sqlite3.Connection) -> Chat:
            update(connection, "chats", get_chat(connection, id).id, changes)
            return get_chat(connection, id)

        return self._mirrored(self._write(set_fields))

    def _mirrored(self, chat: Chat) -> Chat:
        self._mirror.keep(chat)
        return chat

    def _streaming(self, message: Message) -> OpenReply:
        def ended(message: Message) -> None:
            self._mirror.keep(self.chat(message.chat), [message])

        return OpenReply(self._database, message, ended, self._clock)

    def _writer(self) -> str | None:
        return None if self._writers is None or self.trouble else self._writers.enter()
