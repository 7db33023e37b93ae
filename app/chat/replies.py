"""A reply: what the model is asked, and what comes back until its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from macspec.choices import think_named
from macspec.config.schema import Reply as ReplySettings
from macspec.events import Finished, Notice, Text
from macspec.plaintext import one_line
from macspec.power import ReplyWatch
from macspec.stats import ReplyCounter
from macspec.store import (
    ASSISTANT,
    RAW,
    GenerationMetadata,
    Message,
    request_messages,
    stored_model,
)
from macspec.text import Written
from macspec.worker import Call, Failed, PairChoice, ReplyRequest
from macspec.worker.messages import Answer

from .tree import Tree
from .turns import ChatNotice, TextPiece, known_spans, with_earlier


def request(
    path: Sequence[Message],
    system: str,
    settings: ReplySettings,
    think: str | None,
    resumed: Message | None = None,
) -> ReplyRequest:
    """What to ask the engine for: an answer to the last message of a path, or the rest of the reply
    to it that is ``resumed``. ``think`` is as in the settings."""
    if path and path[-1].role == RAW:
        text = path[-1].text + ("" if resumed is None else resumed.text)
        return ReplyRequest(text, max_tokens=settings.max_tokens, raw=True)
    return ReplyRequest(
        tuple(request_messages(path, system, resumed)),
        max_tokens=settings.max_tokens,
        think=think_named(think),
        resume=resumed is not None,
    )


class StreamingReply:
    """A reply while it streams: events become text, numbers and a record.

    Each event takes the same time, however long the reply is.

    Args:
        message: what it answers; a reply itself is continued, or starts over if it is empty.
        metadata: what is known before it begins.
        pair: the pair that answers, as far as it is known.
    """

    call: Call
    """The engine's answer, from the moment it is asked."""
    watch: ReplyWatch | None = None
    """Measures its energy; None: nothing does."""

    def __init__(
        self,
        tree: Tree,
        message: Message,
        metadata: GenerationMetadata,
        pair: Callable[[], PairChoice],
    ) -> None:
        self._known, self._pair = metadata, pair
        self._written, self._counter = Written(), ReplyCounter()
        self.resumed: Message | None = None
        """The reply as it was, if it is continued."""
        if message.role == ASSISTANT:
            old = message.metadata or GenerationMetadata()
            self._written = Written(
                known_spans(old.spans, message.text),
                known_spans(old.reasoning_spans, message.reasoning),
            )
            self.resumed = message if message.text or message.reasoning else None
            self.reply, parent = tree.store.resume(message.id), message.parent
        else:
            self.reply = tree.store.reply(message.chat, message.id, metadata)
            parent = message.id
        self.shown = tree.put(tree.store.message(self.reply.id), parent)
        self.path = tree.thread[:-1]
        """The messages before it."""
        self.message: Message | None = None
        """The reply, once it is over."""
        self.stopped = False
        """Whether the engine was asked to end it."""
        self.refusal: str | None = None
        """Why the engine refused to begin; None: it did not."""

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
            case Failed("refused", message) if self.resumed is None and not self.reply.text:
                self.message, self.refusal = self.reply.cut_off(), message
            case Failed(_, message):
                self.message = self.reply.cut_off(self._metadata())
                return ChatNotice(message, "error")
        return None

    def stop(self) -> None:
        self.stopped = True
        self.call.stop()

    def cut_off(self) -> None:
        """End it without the engine, and put all that has arrived, seen or not, on the disk."""
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
            self._known,
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
        if self.resumed is None:
            return metadata
        earlier = self.resumed.metadata or GenerationMetadata()
        energy = None if metadata.stats is None else metadata.energy
        return replace(
            metadata,
            stats=with_earlier(earlier.stats, metadata.stats),
            energy=with_earlier(earlier.energy, energy),
        )
