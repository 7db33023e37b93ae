"""A reply while it streams: on disk within a second, whatever becomes of the process."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from . import queries
from .database import Database
from .records import COMPLETE, CUT_OFF, STOPPED, GenerationMetadata, Message
from .rows import change, metadata_text

SAVE_EVERY = 0.5
"""Seconds between two saves of a reply that streams."""

INTERRUPTED = "interrupted"
"""The reason of a reply that the user has stopped."""


class OpenReply:
    """A reply that takes text. One thread appends; another one saves, so appending never waits.

    It ends with ``finish`` or ``cut_off``; leaving it as a context manager cuts off what is open.

    Args:
        database: where the message is.
        message: the open reply, with the text it has.
        ended: is told the message once it has ended.
        clock: seconds since 1970.
        every: seconds between saves; None: only ``save`` saves.
    """

    def __init__(
        self,
        database: Database,
        message: Message,
        ended: Callable[[Message], None],
        clock: Callable[[], float],
        every: float | None = SAVE_EVERY,
    ) -> None:
        self.id = message.id
        self.chat = message.chat
        self._database = database
        self._ended = ended
        self._clock = clock
        self._every = every
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
        """Take more text.

        Raises:
            ValueError: the reply has ended.
        """
        if self._over.is_set():
            raise ValueError("the reply has ended")
        self._text.append(text)
        self._reasoning.append(reasoning)
        self._changed.set()
        if self._saver is None and self._every is not None:
            self._saver = threading.Thread(target=self._keep_saving, daemon=True)
            self._saver.start()

    def save(self) -> None:
        """Save what there is."""
        self._changed.clear()
        fields = self._fields()
        self._database.write(
            lambda connection: change(connection, "messages", self.id, fields), durable=False
        )

    def finish(self, reason: str = "end", metadata: GenerationMetadata | None = None) -> Message:
        """The reply has come to its end.

        Args:
            reason: why it ended; ``interrupted``: the user has stopped it.
            metadata: how it was made; None: as was said when it was opened.
        """
        return self._end(STOPPED if reason == INTERRUPTED else COMPLETE, reason, metadata)

    def cut_off(self, metadata: GenerationMetadata | None = None) -> Message:
        """Something has broken the reply off; it can be resumed."""
        return self._end(CUT_OFF, None, metadata)

    def _end(self, state: str, reason: str | None, metadata: GenerationMetadata | None) -> Message:
        self._over.set()
        self._changed.set()
        if self._saver is not None:
            self._saver.join()
        fields = {**self._fields(), "state": state, "reason": reason, "writer": None}
        if metadata is not None:
            fields["making"] = metadata_text(metadata)

        def end(connection: sqlite3.Connection) -> Message:
            change(connection, "messages", self.id, fields)
            change(connection, "chats", self.chat, {"changed": self._clock()})
            return queries.message(connection, self.id)

        message = self._database.write(end)
        self._ended(message)
        return message

    def _fields(self) -> dict[str, Any]:
        return {"text": self.text, "reasoning": "".join(self._reasoning)}

    def _keep_saving(self) -> None:
        while not self._over.wait(self._every):
            self._changed.wait()
            if not self._over.is_set():
                # What fails here fails again, and is told, at the end.
                with suppress(sqlite3.Error):
                    self.save()
