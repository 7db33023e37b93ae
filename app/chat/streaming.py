"""One reply, from its request to its end: what the engine tells becomes text, numbers and a record.

Nothing here takes longer the longer a reply is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from macspec.events import Finished, Notice, Prefilled, Round, Text
from macspec.plaintext import one_line
from macspec.power import ReplyWatch
from macspec.stats import Counters
from macspec.store import GenerationMetadata, Message, OpenReply, stored_model
from macspec.worker import Call, Failed, PairChoice
from macspec.worker.messages import Answer
from macspec.written import Written

from .parts import after
from .turns import Piece
from .updates import Told


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

    def take(self, event: Answer) -> Piece | Told | None:
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
                return Told(one_line(message))
            case Finished(reason):
                self.message = self.reply.finish(reason, self._made(event))
            case Failed("stopped"):
                self.message = self.reply.finish("interrupted", self._made())
            case Failed(_, message):
                self.message = self.reply.cut_off(self._made())
                return Told(message, "error")
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

    def _text(self, event: Text) -> Piece | None:
        answer, reasoning = self._written.take(event)
        if not answer and not reasoning:
            return None
        self.reply.append(answer, reasoning)
        return Piece(event.delta, event.spans, reasoning=bool(reasoning))

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
