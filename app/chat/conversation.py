"""A conversation with an engine and a store, shared by screen and line mode."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from macspec.config import Config
from macspec.errors import BadOptionError
from macspec.events import Finished, Prefilled, Prefilling
from macspec.plaintext import one_line
from macspec.power import Meter, ReplyEnergy, awake
from macspec.store import USER, Chat, GenerationMetadata, Store, model_name, stored_model
from macspec.worker import EngineClient, Failed, PairChoice, ReplyRequest, Tuning
from macspec.worker.messages import Answer

from ..panel.live import LiveStats
from ..panel.state import PanelState
from .chatlist import ChatList
from .comparison import Comparing, Comparison, last_prompt
from .energy import Energies
from .loading import Loading, LoadUpdate
from .replies import Asking, Beginning, Streaming, request
from .settings import Dials, described
from .tree import Tree
from .turns import Began, Changed, ChatNotice, Dropped, Ended, Turn, Update, instead

BUSY = "a reply is being written: wait for it, or stop it with Esc"

COMPARING = "replies are being compared: wait for them, or stop that with Esc"

HISTORY = 200
"""Prompts that can be walked through."""


class State:
    """The parts of a conversation, and what there is to see of it.

    Args:
        engine: what answers; started, and closed, by whoever made it.
        store: where everything is kept.
        config: the settings.
        meter: measures power; started once a pair is there. None: nothing does.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        engine: EngineClient,
        store: Store,
        config: Config,
        *,
        meter: Meter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine, self.store, self.config = engine, store, config
        self.listener: Callable[[Update], None] = lambda update: None
        """Told of ``Changed``, which happens after a reply has ended."""
        self.think = config.reply.think
        """Reasoning on or off; None: as the model does by itself."""
        self.first_run = not store.chats(1)
        """Whether there were no conversations yet."""
        self._tree = Tree(store, config.reply.system)
        self._asking = Asking(self._tree)
        self._live = LiveStats()
        self._dials = Dials(engine, config)
        self._loading = Loading(engine, self._live, self._dials, clock)
        self._energies = Energies(meter)
        self._streaming: Streaming | None = None
        self._comparing: Comparing | None = None

    @property
    def chat(self) -> Chat | None:
        """The conversation; None while nothing was said or typed in a new one."""
        return self._tree.chat

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The path that is shown; the text of a reply that streams is not in it yet."""
        return self._tree.turns

    @property
    def busy(self) -> bool:
        """Whether a reply streams, or replies are compared."""
        return self._streaming is not None or self._comparing is not None

    @property
    def unsent(self) -> str:
        """What was typed here and not sent."""
        return "" if self.chat is None else self.chat.unsent

    @property
    def sent(self) -> Sequence[str]:
        """Earlier prompts of all conversations, the newest last."""
        return self.store.prompts(HISTORY)

    @property
    def system(self) -> str:
        """The system prompt of this conversation."""
        return self._tree.system

    @property
    def sampling(self) -> dict[str, object]:
        """What this conversation sets otherwise than the settings do."""
        return self._tree.sampling

    @property
    def tuning(self) -> Tuning:
        """Method, depth, rule and the whole sampling, as they are set."""
        return self._dials.wanted(self.sampling)

    def _idle(self) -> None:
        if self._comparing is not None:
            raise BadOptionError(COMPARING)
        if self.busy:
            raise BadOptionError(BUSY)

    def _there(self) -> Chat:
        if self.chat is None:
            raise BadOptionError("nothing was said in this conversation yet")
        return self.chat


class Chatting(State):
    """Opening, naming, copying, deleting, and what each conversation sets for itself."""

    def open(self, id: int) -> None:
        """Stand where a conversation was left."""
        self._idle()
        self._tree.open(id)
        self._live.elsewhere()

    def new(self) -> None:
        """A new conversation; the store has it once something is said or typed."""
        self._idle()
        self._tree.clear()
        self._live.elsewhere()

    def reopen_last(self) -> bool:
        """Open the conversation that was changed last; whether there was one."""
        last = self.store.last_chat()
        if last is not None:
            self.open(last.id)
        return last is not None

    def refresh(self) -> None:
        """Look again at a conversation that was changed elsewhere."""
        if not self.busy:
            self._tree.reload()

    def rename(self, title: str) -> Chat:
        """Give this conversation a title."""
        self._tree.chat = self.store.rename(self._there().id, one_line(title))
        return self._tree.chat

    def fork(self, turn_id: int) -> Chat:
        """Go on in a copy of everything up to a turn; this conversation stays as it is."""
        self._idle()
        chat = self.store.fork(self._tree.message(turn_id).id)
        self._tree.open(chat.id)
        return chat

    def delete(self, id: int | None = None) -> Chat:
        """Delete a conversation; None: this one. ``undo`` brings it back."""
        here = None if self.chat is None else self.chat.id
        id = self._there().id if id is None else id
        if id == here:
            self._idle()
        (chat,) = self.store.delete(id)
        if id == here:
            self._tree.clear()
            self._live.elsewhere()
        return chat

    def undo(self) -> list[Chat]:
        """Bring back what the last deletion took."""
        return self.store.undo()

    def step(self, turn_id: int, by: int) -> None:
        """Show another version of a turn, and what follows it."""
        self._idle()
        self._tree.step(turn_id, by)

    def export(self, name: str) -> Path:
        """Write this conversation to a new file: all of it as ``.json``, else as Markdown."""
        return ChatList(self.store).export(self._there().id, name)

    def set_system(self, text: str) -> None:
        """The system prompt of this conversation, from the next reply on."""
        self._tree.set_system(text)

    async def set_sampling(self, sampling: Mapping[str, Any]) -> Tuning:
        """What this conversation sets, from the next round on; the rest is as in the settings."""
        tuning = await self._dials.set_sampling(sampling)
        self._tree.set_sampling(dict(sampling))
        return tuning

    def set_think(self, think: str | None) -> str | None:
        """Reasoning on or off, or None for the model's default, from the next reply on.

        Returns:
            Why that changes nothing with the pair that answers; None: it does.
        """
        self.think = think
        return self.think_fixed

    @property
    def thinks(self) -> bool:
        """Whether reasoning can be switched on and off here, as far as is known."""
        return self._live.pair is None or self._live.pair.thinks

    @property
    def think_fixed(self) -> str | None:
        """Why what is set for reasoning changes nothing here; None: it does, or nothing is set."""
        pair = self._live.pair
        if self.think is None or pair is None or pair.thinks:
            return None
        return (
            f"{model_name(pair.target)} has no switch for reasoning: {self.think} is kept for "
            "models that have one"
        )

    def save_unsent(self, text: str) -> None:
        """Keep what is typed and not sent."""
        if text == self.unsent or (self.chat is None and not text.strip()):
            return
        self._tree.chat = self.store.set_unsent(self._tree.begun().id, text)


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

    def _troubles(self) -> list[ChatNotice]:
        """What went wrong meanwhile, each once."""
        refusal, trouble = self._dials.refusal(), self.store.trouble
        told = [] if refusal is None else [ChatNotice(refusal, "warning")]
        if trouble is not None and trouble != self._trouble:
            told.append(ChatNotice(trouble, "warning"))
        self._trouble = trouble
        return told


class Conversation(Chatting, Replies):
    """One conversation at a time. All calls from one event loop; what is not ``async`` is short.

    What cannot be done raises ``BadOptionError`` with a line for the user, and changes nothing.
    """

    def load(self, choice: PairChoice) -> AsyncIterator[LoadUpdate]:
        """Load a pair, or switch to it: Notice and LoadProgress, then Loaded or Failed."""
        return self._loading.load(choice, self.sampling, self._energies.start)

    def cancel_load(self) -> None:
        """Give up a load that is under way; the pair before stays."""
        self._loading.cancel()

    @property
    def choice(self) -> PairChoice | None:
        """The pair that was loaded last."""
        return self._loading.choice

    async def tune(self, **changes: Any) -> Tuning:
        """Change method, depth, rule or fields of ``sampling`` from the next round on.

        The sampling is this conversation's; the rest holds for all.
        """
        tuning = await self._dials.tune(changes, self.sampling)
        if "sampling" in changes:
            self._tree.set_sampling({**self.sampling, **changes["sampling"]})
        for what in described(changes):
            self._live.mark(what)
        self._loading.look(busy=self.busy, now=True)
        return tuning

    def panel(self) -> PanelState:
        """The numbers now; for four times a second."""
        self._loading.look(busy=self.busy)
        return self._energies.on(self._dials.on(self._live.state(), self.sampling))

    async def close(self) -> None:
        """Keep everything and let go of the store; the engine is its maker's to close."""
        self.saved_interrupt()
        await self._energies.close()
        self.store.close()
