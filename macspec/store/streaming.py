"""A reply while it streams: on disk within a second, even if the process dies."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import BadOptionError
from ..io import LockedFile, is_locked
from . import records
from .database import Database
from .records import GenerationMetadata, Message, get_message, metadata_json, update

SAVE_EVERY = 0.5
"""Seconds between two saves of a streaming reply."""

INTERRUPTED = "interrupted"
"""The reason of a reply that the user stopped."""

WRITER_SUFFIX = ".writer"


class OpenReply:
    """A reply that is being written. A thread of its own saves it, so appending never waits.

    It ends with ``finish`` or ``cut_off``; leaving it as a context manager cuts off an open reply.

    ``ended`` is called with the message once it has ended.
    """

    def __init__(
        self,
        database: Database,
        message: Message,
        ended: Callable[[Message], None],
        clock: Callable[[], float],
    ) -> None:
        self.id = message.id
        self.chat = message.chat
        self._database = database
        self._ended = ended
        self._clock = clock
        self._message = message
        self._text = [message.text]
        self._reasoning = [message.reasoning]
        self._changed = threading.Event()
        self._over = threading.Event()
        self._saver: threading.Thread | None = None

    def __enter__(self) -> OpenReply:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._over.is_set():
            self.cut_off()

    @property
    def text(self) -> str:
        """The text so far, saved or not."""
        return "".join(self._text)

    def append(self, text: str, reasoning: str = "") -> None:
        """Add text; ValueError if the reply has ended."""
        if self._over.is_set():
            raise ValueError("the reply has ended")
        self._text.append(text)
        self._reasoning.append(reasoning)
        self._changed.set()
        if self._saver is None:
            self._saver = threading.Thread(target=self._keep_saving, daemon=True)
            self._saver.start()

    def save(self) -> None:
        self._changed.clear()
        fields = self._fields()
        self._database.write(
            lambda connection: update(connection, "messages", self.id, fields), durable=False
        )

    def finish(self, reason: str = "end", metadata: GenerationMetadata | None = None) -> Message:
        """End the reply; without metadata it keeps what was given when it was opened."""
        state = records.STOPPED if reason == INTERRUPTED else records.COMPLETE
        return self._end(state, reason, metadata)

    def cut_off(self, metadata: GenerationMetadata | None = None) -> Message:
        """End the reply as broken off; it can be resumed."""
        return self._end(records.CUT_OFF, None, metadata)

    def _end(self, state: str, reason: str | None, metadata: GenerationMetadata | None) -> Message:
        self._over.set()
        self._changed.set()
        if self._saver is not None:
            self._saver.join()
        fields = {**self._fields(), "state": state, "reason": reason, "writer": None}
        if metadata is not None:
            fields["making"] = metadata_json(metadata)

        def end(connection: sqlite3.Connection) -> Message:
            update(connection, "messages", self.id, fields)
            # Whoever deleted the conversation meanwhile did not know of this reply.
            update(connection, "chats", self.chat, {"changed": self._clock(), "deleted": None})
            return get_message(connection, self.id)

        try:
            message = self._database.write(end)
        except BadOptionError:  # Removed for good: whoever has the conversation may keep it.
            known = metadata or self._message.metadata
            text, reasoning = self.text, "".join(self._reasoning)
            return replace(
                self._message,
                text=text,
                reasoning=reasoning,
                state=state,
                reason=reason,
                metadata=known,
            )
        self._ended(message)
        return message

    def _fields(self) -> dict[str, Any]:
        return {"text": self.text, "reasoning": "".join(self._reasoning)}

    def _keep_saving(self) -> None:
        while not self._over.wait(SAVE_EVERY):
            self._changed.wait()
            if not self._over.is_set():
                # An error here comes up again at the end, where it is reported.
                with suppress(sqlite3.Error):
                    self.save()


class Writers:
    """A folder with one locked file for each process that streams replies into a store.

    A lock ends with its process, however that dies. Where files cannot be locked, this process has
    no name and counts as dead: others see its reply as cut off until it saves it again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: LockedFile | None = None

    def enter(self) -> str | None:
        """Take a name, if possible, and keep it until ``leave`` or the end of this process."""
        if self._file is None:
            with suppress(OSError):
                self._file = LockedFile(self._folder, WRITER_SUFFIX)
        return None if self._file is None else self._file.path.name

    def leave(self) -> None:
        if self._file is not None:
            self._file.remove()
        self._file = None

    def alive(self, name: str | None) -> bool:
        """Whether the process of that name still holds it."""
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(WRITER_SUFFIX):
            return False
        return is_locked(self._folder / name)

    def sweep(self) -> None:
        """Remove the files of dead processes."""
        with suppress(OSError):
            for path in self._folder.glob(f"*{WRITER_SUFFIX}"):
                if not self.alive(path.name):
                    path.unlink(missing_ok=True)
