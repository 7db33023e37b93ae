"""A reply: what the model is asked, and what comes back until its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from macspec.config.schema import Reply as ReplySettings
from macspec.errors import BadOptionError
from macspec.events import Finished, Notice, Prefilled, Round, Text
from macspec.plaintext import one_line
from macspec.power import ReplyWatch
from macspec.stats import Counters
from macspec.store import ASSISTANT, RAW, USER, GenerationMetadata, Message, OpenReply, stored_model
from macspec.text import Written
from macspec.worker import Call, Failed, PairChoice, ReplyRequest
from macspec.worker.messages import Answer

from .tree import Tree, spoken
from .turns import ChatNotice, TextPiece, Turn, after, known_spans


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


class Streaming:
    """A reply while it comes.

    Args:
        reply: where it is kept.
        call: what the engine answers.
        written: what the reply had before.
        making: what is known before it begins.
        before: how the reply as it was had been made, where it goes on.
        watch: measures what it takes; None: nothing does.
        pair: which one answers, as far as that is known when it is asked.
    """

    def __init__(
        self,
        reply: OpenReply,
        call: Call,
        written: Written,
        making: GenerationMetadata,
        watch: ReplyWatch | None = None,
        pair: Callable[[], PairChoice] = PairChoice,
        before: GenerationMetadata | None = None,
    ) -> None:
        self.reply, self.call, self.watch = reply, call, watch
        self._written, self._making, self._pair = written, making, pair
        self._before = before
        self.message: Message | None = None
        """The reply, once it is over."""
        self._counters, self._now = Counters(0.0), 0.0
        self.stopped = False
        """Whether the engine was asked to end it."""

    def take(self, event: Answer) -> TextPiece | ChatNotice | None:
        """Take the next event; what there is to show of it."""
        if self.watch is not None:
            self.watch.see(event)  # type: ignore[arg-type]
        match event:
            case Text():
                return self._text(event)
            case Prefilled(prompt, cached):
                self._counters.prompt_tokens = prompt
                self._counters.cached_tokens = cached
                self._counters.dropped_messages = event.dropped_messages
            case Round():
                self._count(event)
            case Notice(message):
                return ChatNotice(one_line(message))
            case Finished(reason):
                self.message = self.reply.finish(reason, self._made(event))
            case Failed("stopped"):
                self.message = self.reply.finish("interrupted", self._made())
            case Failed(_, message):
                self.message = self.reply.cut_off(self._made())
                return ChatNotice(message, "error")
        return None

    def stop(self) -> None:
        """Ask the engine to end the reply."""
        self.stopped = True
        self.call.stop()

    def cut_off(self) -> None:
        """End it here, without the engine; what came is on the disk when this returns, what nobody
        has looked at yet too."""
        for event in self.call.arrived():
            if self.message is None:
                self.take(event)
        if self.message is None:
            self.message = self.reply.cut_off(self._made())

    def close(self) -> Message:
        """Nobody listens any more: what came is kept, and the engine need not go on."""
        if self.message is None:
            self.call.stop()
            self.message = self.reply.finish("interrupted", self._made())
        if self.watch is not None:
            self.watch.end()
        return self.message

    def _text(self, event: Text) -> TextPiece | None:
        answer, reasoning = self._written.take(event)
        if not answer and not reasoning:
            return None
        self.reply.append(answer, reasoning)
        return TextPiece(event.delta, event.spans, reasoning=bool(reasoning))

    def _count(self, event: Round) -> None:
        """Count a pass, for a reply whose end the engine does not tell."""
        self._now += event.seconds
        self._counters.count(
            self._now, len(event.tokens), event.drafted, event.accepted, event.idle_seconds
        )

    def _made(self, finished: Finished | None = None) -> GenerationMetadata:
        """How it was made, as far as that is known now."""
        pair = self._pair()
        making = replace(
            self._making,
            model=stored_model(pair.target),
            draft=stored_model(pair.draft),
            spans=self._written.spans,
            reasoning_spans=self._written.reasoning_spans,
            stats=self._stats(finished),
            energy=None if self.watch is None else self.watch.result().as_dict(),
        )
        if finished is not None:
            making = replace(
                making,
                rule=finished.rule,
                method=finished.method,
                depth=finished.depth,
                seed=finished.seed,
            )
        old = self._before
        if old is None:
            return making
        energy = None if making.stats is None else making.energy
        return replace(
            making, stats=after(old.stats, making.stats), energy=after(old.energy, energy)
        )

    def _stats(self, finished: Finished | None) -> dict[str, Any] | None:
        """What the engine told at the end, or what was counted here."""
        if finished is not None:
            return finished.stats.as_dict()
        return self._counters.stats().as_dict() if self._counters.passes else None
