"""Titles that the model gives a conversation, while nobody waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from macspec.events import Text
from macspec.plaintext import one_line
from macspec.store import COMPLETE, Chat, Message, Store
from macspec.store.records import FIRST_LINE, TITLE_LENGTH
from macspec.worker import Call, EngineClient, ReplyRequest

ASKED = "Write a title of at most five words for this conversation. Answer with the title only."

LONGEST = 24
"""Tokens of an answer."""


class Titles:
    """Asks the model for the title of a conversation after its first reply, once.

    The question follows the conversation, so that the next message finds it still in the cache.
    """

    def __init__(self, engine: EngineClient, store: Store) -> None:
        self._engine, self._store = engine, store
        self._asked: set[int] = set()
        self._call: Call | None = None

    def wanted(self, chat: Chat | None, thread: Sequence[Message]) -> bool:
        """Whether the conversation has a reply and no title of its own, and was not asked about."""
        return (
            chat is not None
            and chat.id not in self._asked
            and chat.titled == FIRST_LINE
            and len(thread) == 2
            and thread[-1].state == COMPLETE
        )

    async def give(self, chat: Chat, request: ReplyRequest) -> Chat | None:
        """Name a conversation; None: the model had no title for it, or was stopped."""
        self._asked.add(chat.id)
        self._call, text = self._engine.reply(request), ""
        async for event in self._call:
            if isinstance(event, Text) and event.part == "answer":
                text += event.delta
        self._call = None
        title = one_line(text.strip().partition("\n")[0]).strip(" \"'*#.`")
        if not 0 < len(title) <= TITLE_LENGTH:
            return None
        return self._store.entitle(chat.id, title)

    def stop(self) -> None:
        """Make way for something that is waited for."""
        if self._call is not None:
            self._call.stop()


def asked(request: ReplyRequest, thread: Sequence[Message]) -> ReplyRequest:
    """The question for a title, after the conversation up to its last reply."""
    reply = {"role": "assistant", "content": thread[-1].text}
    messages = (*request.messages, reply, {"role": "user", "content": ASKED})
    return ReplyRequest(messages, max_tokens=LONGEST, think=False, learn=False)
