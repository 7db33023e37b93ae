"""A reply: what the model is asked, and what comes back until its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from macspec.config.schema import Reply as ReplySettings
from macspec.errors import BadOptionError
from macspec.events import Finished, Notice, Text
from macspec.plaintext import one_line
from macspec.power import ReplyWatch
from macspec.stats import ReplyCounter
from macspec.store import ASSISTANT, RAW, USER, GenerationMetadata, Message, OpenReply, stored_model
from macspec.text import Written
from macspec.worker import Call, Failed, PairChoice, ReplyRequest
from macspec.worker.messages import Answer

from .tree import Tree, spoken
from .turns import ChatNotice, TextPiece, Turn, known_spans, with_earlier


@dataclass(frozen=True, slots=True)
class ReplyStart:
    """A reply that is about to be requested."""

    prompt: Turn | None
    """The new message that it answers; None: an earlier one."""
    shown: Turn
    reply: OpenReply
    metadata: GenerationMetadata
    """What is known before it begins."""
    path: Sequence[Message]
    """The messages before it."""
    resumed: Message | None = None
    """The reply as it was, if it is resumed."""
    written: Written | None = None
    """What it held before."""


class ReplyStarter:
    """Begins replies on a path. What cannot be answered raises ``BadOptionError``."""

    def __init__(self, tree: Tree) -> None:
        self._tree, self._store = tree, tree.store

    def check(self, text: str) -> None:
        """Whether a message can be added at the end of the path."""
        if not text.strip():
            raise BadOptionError("the prompt is empty")
        if any(message.role == RAW for message in self._tree.thread):
            raise BadOptionError(
                "this text was generated with --raw and has no turns: start a new conversation"
            )

    def edited(self, id: int, text: str) -> Message:
        if not text.strip():
            raise BadOptionError("the prompt is empty")
        message = self._tree.message(id)
        if message.role == ASSISTANT:
            raise BadOptionError("only your own messages can be edited; regenerate a reply instead")
        return message

    def answered(self, id: int | None) -> Message:
        """The message to answer again: one of the user's, or an empty reply, which starts over.

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
            raise BadOptionError("this reply has no prompt that could be answered again")
        return self._tree.message(message.parent)

    def resumed(self, id: int) -> Message:
        message = self._tree.message(id)
        if message.role != ASSISTANT:
            raise BadOptionError("only a reply can be continued")
        return message

    def prompt(
        self, text: str, parent: int | None, role: str, metadata: GenerationMetadata
    ) -> ReplyStart:
        chat = self._tree.begun()
        message = self._store.add(chat.id, parent, text, role)
        if chat.unsent:
            self._store.set_unsent(chat.id, "")
        return self.reply(message, metadata, self._tree.put(message, parent))

    def reply(
        self, message: Message, metadata: GenerationMetadata, prompt: Turn | None = None
    ) -> ReplyStart:
        """Begin the reply to a message; a reply itself is continued."""
        resumed = written = None
        if message.role == ASSISTANT:
            old = message.metadata or GenerationMetadata()
            written = Written(
                known_spans(old.spans, message.text),
                known_spans(old.reasoning_spans, message.reasoning),
            )
            resumed = message if message.text or message.reasoning else None
            reply, parent = self._store.resume(message.id), message.parent
        else:
            reply, parent = self._store.reply(message.chat, message.id, metadata), message.id
        shown = self._tree.put(self._store.message(reply.id), parent)
        path = self._tree.before(reply.id)
        return ReplyStart(prompt, shown, reply, metadata, path, resumed, written)


def request(
    path: Sequence[Message],
    system: str,
    settings: ReplySettings,
    think: str | None,
    resumed: Message | None = None,
) -> ReplyRequest:
    """What to ask the engine for.

    Args:
        path: the messages up to the one that is answered.
        think: on, off or None.
        resumed: the reply to it, if that is continued.
    """
    if path and path[-1].role == RAW:
        text = path[-1].text + ("" if resumed is None else resumed.text)
        return ReplyRequest(text, max_tokens=settings.max_tokens, raw=True)
    messages: list[Mapping[str, str]] = []
    if system:
        messages.append({"role": "system", "content": system})
    for group in spoken(path):
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


class StreamingReply:
    """A reply while it streams: events become text, numbers and a record.

    Each event takes the same time, however long the reply is.

    Args:
        call: the engine's answer.
        watch: measures its energy; None: nothing does.
        pair: the pair that answers, as far as it is known.
    """

    def __init__(
        self,
        start: ReplyStart,
        call: Call,
        watch: ReplyWatch | None,
        pair: Callable[[], PairChoice],
    ) -> None:
        self.reply, self.call, self.watch = start.reply, call, watch
        self._start, self._pair = start, pair
        self._written = start.written or Written()
        self._counter = ReplyCounter()
        self.message: Message | None = None
        """The reply, once it is over."""
        self.stopped = False
        """Whether the engine was asked to end it."""

    def take(self, event: Answer) -> TextPiece | ChatNotice | None:
        """Take the next event; returns what there is to show of it."""
        self._counter.see(event)
        if self.watch is not None:
            self.watch.see(event)  # type: ignore[arg-type]
        match event:
            case Text():
                return self._text(event)
            case Notice(message):
                return ChatNotice(one_line(message))
            case Finished(reason):
                self.message = self.reply.finish(reason, self._metadata(event))
            case Failed("stopped"):
                self.message = self.reply.finish("interrupted", self._metadata())
            case Failed(_, message):
                self.message = self.reply.cut_off(self._metadata())
                return ChatNotice(message, "error")
        return None

    def stop(self) -> None:
        self.stopped = True
        self.call.stop()

    def cut_off(self) -> None:
        """End it without the engine. Everything that has arrived, seen or not, is on the disk when
        this returns."""
        for event in self.call.arrived():
            if self.message is None:
                self.take(event)
        if self.message is None:
            self.message = self.reply.cut_off(self._metadata())

    def close(self) -> Message:
        """Nobody listens any more: keep what has arrived, and stop the engine."""
        if self.message is None:
            self.call.stop()
            self.message = self.reply.finish("interrupted", self._metadata())
        if self.watch is not None:
            self.watch.end()
        return self.message

    def _text(self, event: Text) -> TextPiece | None:
        answer, reasoning = self._written.take(event)
        if not answer and not reasoning:
            return None
        self.reply.append(answer, reasoning)
        return TextPiece(event.delta, event.spans, reasoning=bool(reasoning))

    def _metadata(self, finished: Finished | None = None) -> GenerationMetadata:
        """How it was generated, as far as that is known now."""
        pair, counter = self._pair(), self._counter
        counted = counter.passes or counter.final is not None
        metadata = replace(
            self._start.metadata,
            model=stored_model(pair.target),
            draft=stored_model(pair.draft),
            spans=self._written.spans,
            reasoning_spans=self._written.reasoning_spans,
            stats=counter.stats().as_dict() if counted else None,
            energy=None if self.watch is None else self.watch.result().as_dict(),
        )
        if finished is not None:
            metadata = replace(
                metadata,
                rule=finished.rule,
                method=finished.method,
                depth=finished.depth,
                seed=finished.seed,
            )
        resumed = self._start.resumed
        if resumed is None:
            return metadata
        earlier = resumed.metadata or GenerationMetadata()
        energy = None if metadata.stats is None else metadata.energy
        return replace(
            metadata,
            stats=with_earlier(earlier.stats, metadata.stats),
            energy=with_earlier(earlier.energy, energy),
        )
