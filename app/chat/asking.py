"""What a reply begins with: its place in the store and on the path, and what the model is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from macspec.config.schema import Reply as ReplySettings
from macspec.errors import BadOptionError
from macspec.store import ASSISTANT, RAW, USER, GenerationMetadata, Message, OpenReply
from macspec.worker import ReplyRequest
from macspec.written import Written

from .making import known_spans
from .tree import Tree, spoken
from .turns import Turn


@dataclass(frozen=True, slots=True)
class Beginning:
    """A reply that is about to be asked for."""

    prompt: Turn | None
    """The message that is new with it."""
    shown: Turn
    reply: OpenReply
    asked: Sequence[Message]
    """The path before it."""
    resumed: Message | None
    """The reply as it was, where it goes on."""
    written: Written
    """What it had before."""

    @property
    def before(self) -> GenerationMetadata | None:
        """How it had been made, where it goes on."""
        return None if self.resumed is None else self.resumed.metadata or GenerationMetadata()


class Asking:
    """Begins replies on a path. What cannot be asked raises ``BadOptionError``."""

    def __init__(self, tree: Tree) -> None:
        self._tree, self._store = tree, tree.store

    def check(self, text: str) -> None:
        """Whether something can be said at the end of the path."""
        if not text.strip():
            raise BadOptionError("the prompt is empty; say something")
        if any(message.role == RAW for message in self._tree.thread):
            raise BadOptionError(
                "this text was written with --raw and has no turns: begin a new conversation"
            )

    def edited(self, id: int, text: str) -> Message:
        """The message in whose place something else is to be said."""
        if not text.strip():
            raise BadOptionError("the prompt is empty; say something")
        message = self._tree.message(id)
        if message.role == ASSISTANT:
            raise BadOptionError("only what you said can be changed; regenerate a reply instead")
        return message

    def answered(self, id: int | None) -> Message:
        """What is to be answered once more: a message of the user's, or a reply without a text,
        which is begun anew.

        Args:
            id: a message of the user's, or the reply to one; None: the last.
        """
        thread = self._tree.thread
        if id is None and not thread:
            raise BadOptionError("there is nothing to answer yet")
        message = self._tree.message(thread[-1].id if id is None else id)
        if message.role != ASSISTANT or not (message.text or message.reasoning):
            return message
        if message.parent is None:
            raise BadOptionError("there is no message that this reply answers")
        return self._tree.message(message.parent)

    def resumed(self, id: int) -> Message:
        """The reply that is to go on."""
        message = self._tree.message(id)
        if message.role != ASSISTANT:
            raise BadOptionError("only a reply can be continued")
        return message

    def say(
        self, text: str, parent: int | None, role: str, making: GenerationMetadata
    ) -> Beginning:
        """A new message and the reply to it."""
        chat = self._tree.begun()
        message = self._store.add(chat.id, parent, text, role)
        if chat.unsent:
            self._store.set_unsent(chat.id, "")
        return self.reply(message, making, self._tree.put(message, parent))

    def reply(
        self, message: Message, making: GenerationMetadata, prompt: Turn | None = None
    ) -> Beginning:
        """A reply to a message; a reply itself goes on."""
        if message.role == ASSISTANT:
            return self._resume(message)
        reply = self._store.reply(message.chat, message.id, making)
        shown = self._tree.put(self._store.message(reply.id), message.id)
        asked = self._tree.before(reply.id)
        return Beginning(prompt, shown, reply, asked, None, Written())

    def _resume(self, message: Message) -> Beginning:
        old = message.metadata or GenerationMetadata()
        written = Written(
            known_spans(old.spans, message.text),
            known_spans(old.reasoning_spans, message.reasoning),
        )
        reply = self._store.resume(message.id)
        shown = self._tree.put(self._store.message(reply.id), message.parent)
        asked = self._tree.before(reply.id)
        resumed = message if message.text or message.reasoning else None
        return Beginning(None, shown, reply, asked, resumed, written)


def request(
    asked: Sequence[Message],
    system: str,
    settings: ReplySettings,
    think: str | None,
    resumed: Message | None = None,
) -> ReplyRequest:
    """What the engine is asked.

    Args:
        asked: the path up to the message that is answered.
        think: on, off or None.
        resumed: the reply to it, where that goes on.
    """
    if asked and asked[-1].role == RAW:
        said = "" if resumed is None else resumed.text
        return ReplyRequest(asked[-1].text + said, max_tokens=settings.max_tokens, raw=True)
    messages: list[Mapping[str, str]] = []
    if system:
        messages.append({"role": "system", "content": system})
    for group in spoken(asked):
        role = ASSISTANT if group[0].role == ASSISTANT else USER
        text = "\n\n".join(message.text for message in group)
        messages.append({"role": role, "content": text})
    if resumed is not None:
        text, reasoning = resumed.text, resumed.reasoning
        messages.append({"role": ASSISTANT, "content": text, "reasoning": reasoning})
    return ReplyRequest(
        tuple(messages),
        max_tokens=settings.max_tokens,
        think=None if think is None else think == "on",
        resume=resumed is not None,
    )
