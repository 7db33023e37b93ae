"""Replies: each is a stream of updates that ends with ``Ended``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial

from macspec.errors import BadOptionError
from macspec.events import Finished, Prefilled, Prefilling
from macspec.power import ReplyEnergy, awake
from macspec.store import USER, GenerationMetadata, stored_model
from macspec.worker import Failed, PairChoice, ReplyRequest
from macspec.worker.messages import Answer

from .asking import Beginning, request
from .compare import Comparing, last_prompt
from .comparison import Comparison
from .parts import instead
from .state import State
from .streaming import Streaming
from .updates import Began, Changed, Dropped, Ended, Told, Update

SIGNS_OF_LIFE = (Prefilling, Prefilled, Finished)


class Replies(State):
    """Asking, and being answered."""

    _trouble: str | None = None

    def ask(self, text: str) -> AsyncIterator[Update]:
        """Say something, at the end of the path."""
        self._idle()
        self._asking.check(text)
        return self._streamed(lambda making: self._asking.say(text, self._tree.leaf, USER, making))

    def edit(self, turn_id: int, text: str) -> AsyncIterator[Update]:
        """Say something else in a turn's place; the turn stays, as another version."""
        self._idle()
        message = self._asking.edited(turn_id, text)
        return self._streamed(
            lambda making: self._asking.say(text, message.parent, message.role, making)
        )

    def regenerate(self, turn_id: int | None = None) -> AsyncIterator[Update]:
        """Another reply in the place of one, or to a message of the user's; None: the last."""
        self._idle()
        message = self._asking.answered(turn_id)
        return self._streamed(lambda making: self._asking.reply(message, making))

    def resume(self, turn_id: int) -> AsyncIterator[Update]:
        """Go on with a reply that was stopped, cut off or too long."""
        self._idle()
        message = self._asking.resumed(turn_id)
        return self._streamed(lambda making: self._asking.reply(message, making))

    def stop(self) -> None:
        """End the reply that streams; what came stays."""
        if self._streaming is not None:
            self._streaming.stop()
        if self._comparing is not None:
            self._comparing.stop()

    def saved_interrupt(self) -> None:
        """Keep everything at once, because the process is about to end."""
        if self._streaming is not None:
            self._streaming.cut_off()

    def compare(self, rule: str | None = None) -> AsyncIterator[Comparison]:
        """Answer the last prompt again, plain and speculative in turns; nothing of it is kept.

        Args:
            rule: greedy, keyed, block or match; None: one under which the texts are the same.
        """
        self._idle()
        thread = self._tree.thread
        end = last_prompt([message.role for message in thread]) + 1
        comparing = Comparing(
            self.engine,
            self._dials,
            self._live,
            self._energies,
            prompt=thread[end - 1].text,
            request=request(thread[:end], self.system, self.config.reply, self.think),
            tuning=self.tuning,
            rule=rule,
        )
        return self._compared(comparing)

    async def _compared(self, comparing: Comparing) -> AsyncIterator[Comparison]:
        self._idle()
        self._comparing, shown = comparing, self._live.shown
        try:
            with awake(self.config.power.keep_awake):
                async for found in comparing.run():
                    yield found
        finally:
            comparing.stop()
            self._comparing = None
            self._dials.settle(self.sampling)
            self._live.resting()
            self._live.show(shown)

    async def _streamed(
        self, begin: Callable[[GenerationMetadata], Beginning]
    ) -> AsyncIterator[Update]:
        """Begin a reply, ask the engine, and pass on what comes."""
        self._idle()
        making = self._making()
        beginning = begin(making)
        asked = request(
            beginning.asked, self.system, self.config.reply, self.think, beginning.resumed
        )
        self._dials.settle(self.sampling)
        self._live.asked()
        watch = self._energies.watch()
        call = self.engine.reply(asked)
        streaming = Streaming(
            beginning.reply,
            call,
            beginning.written,
            making,
            watch,
            lambda: self._loading.choice or PairChoice(),
            beginning.before,
        )
        self._streaming = streaming
        try:
            with awake(self.config.power.keep_awake):
                yield Began(beginning.prompt, beginning.shown)
                async for event in self._answers(streaming, asked):
                    self._live.see(event)
                    if isinstance(event, Prefilled) and self._tree.drop(
                        event.dropped_messages, beginning.asked
                    ):
                        yield Dropped(self._tree.dropped)
                    update = streaming.take(event)
                    if update is not None:
                        yield update
        finally:
            self._streaming = None
            self._live.resting()
            ended = self._tree.change(streaming.close())
            self._energies.settle(watch, partial(self._settled, beginning.reply.id))
        for told in self._troubles():
            yield told
        yield Ended(ended or beginning.shown)

    async def _answers(self, streaming: Streaming, asked: ReplyRequest) -> AsyncIterator[Answer]:
        """The events of a reply, until it is over or was ended from outside.

        An engine that was lost before is noticed only now; then another one is asked.
        """
        alive = False
        while streaming.message is None:
            async for event in streaming.call:
                if streaming.message is not None:
                    return
                if isinstance(event, SIGNS_OF_LIFE):
                    alive = True
                    self._loading.back()
                if isinstance(event, Failed):
                    self._loading.lost(event)
                    if event.kind == "crashed" and not alive and not streaming.stopped:
                        alive = True
                        streaming.call = self.engine.reply(asked)
                        break
                yield event

    def _settled(self, id: int, energy: ReplyEnergy) -> None:
        """What a reply took is known for good."""
        try:
            making = self.store.message(id).metadata
        except BadOptionError:
            return  # It was deleted for good.
        if making is None or (self._streaming is not None and self._streaming.reply.id == id):
            return
        now = instead(making.energy, energy.as_dict())
        message = self.store.set_metadata(id, replace(making, energy=now))
        turn = self._tree.change(message)
        if turn is not None:
            self.listener(Changed(turn))

    def _making(self) -> GenerationMetadata:
        choice, tuning = self._loading.answering, self.tuning
        sampling = {name: value for name, value in tuning.sampling.items() if name != "seed"}
        return GenerationMetadata(
            model=stored_model(choice.target),
            draft=stored_model(choice.draft),
            sampling=sampling,
            rule=tuning.rule,
            method=tuning.method,
            depth=tuning.depth,
            seed=tuning.sampling.get("seed"),
        )

    def _troubles(self) -> list[Told]:
        """What went wrong meanwhile, each once."""
        refusal, trouble = self._dials.refusal(), self.store.trouble
        told = [] if refusal is None else [Told(refusal, "warning")]
        if trouble is not None and trouble != self._trouble:
            told.append(Told(trouble, "warning"))
        self._trouble = trouble
        return told
