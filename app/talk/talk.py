"""A conversation with an engine and a store: what the screen and line mode have in common."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from macspec.config import Config
from macspec.errors import BadOptionError
from macspec.events import Prefilled
from macspec.power import Meter, ReplyEnergy, awake
from macspec.store import USER, Chat, Making, Store
from macspec.store.naming import lasting
from macspec.worker import EngineClient, Failed, PairChoice, Tuning

from .asking import Asking, Beginning
from .energy import Energies
from .live import LiveStats
from .loading import Loading, LoadUpdate
from .panel import PanelState
from .streaming import Streaming
from .tree import Tree
from .tuning import Dials, described
from .turns import Turn
from .updates import Began, Changed, Dropped, Ended, Told, Update

__all__ = ["Began", "Changed", "Dropped", "Ended", "Talk", "Told", "Update"]

BUSY = "a reply is being written: wait for it, or stop it with Esc"

HISTORY = 200
"""Prompts that can be walked through."""


class Talk:
    """One conversation at a time. All calls from one event loop; what is not ``async`` is short.

    What cannot be done raises ``BadOptionError`` with a line for the user, and changes nothing.

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
        """Told of what happens outside of a reply's updates: ``Changed`` and ``Told``."""
        self.think = config.reply.think
        self._tree = Tree(store, config.reply.system)
        self._live = LiveStats()
        self._dials = Dials(engine, config)
        self._loading = Loading(engine, self._live, self._dials, clock)
        self._energies = Energies(meter)
        self._asking = Asking(self._tree)
        self._streaming: Streaming | None = None
        self._trouble: str | None = None
        self.first_run = not store.chats(1)
        """Whether there were no conversations yet."""

    # What is shown.

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
        """Whether a reply streams."""
        return self._streaming is not None

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

    def panel(self) -> PanelState:
        """The numbers now; for four times a second."""
        self._loading.look(busy=self.busy)
        return self._energies.on(self._dials.on(self._live.state(), self.sampling))

    # The pair.

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

    # Conversations.

    def open(self, id: int) -> None:
        """Stand where a conversation was left."""
        self._idle()
        self._tree.open(id)

    def new(self) -> None:
        """A new conversation; the store has it once something is said or typed."""
        self._idle()
        self._tree.clear()

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
        if not title.strip():
            raise BadOptionError("the title is empty")
        self._tree.chat = self.store.rename(self._there().id, title)
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
        return chat

    def undo(self) -> list[Chat]:
        """Bring back what the last deletion took."""
        chats = self.store.undo()
        if not chats:
            raise BadOptionError("nothing is deleted that could be brought back")
        return chats

    def set_system(self, text: str) -> None:
        """The system prompt of this conversation, from the next reply on."""
        self._tree.set_system(text)

    async def set_sampling(self, sampling: Mapping[str, Any]) -> Tuning:
        """What this conversation sets, from the next round on; the rest is as in the settings."""
        tuning = await self._dials.set_sampling(sampling)
        self._tree.set_sampling(dict(sampling))
        return tuning

    def set_think(self, think: str | None) -> None:
        """Reasoning on or off, or None for the model's default, from the next reply on."""
        self.think = think

    def save_unsent(self, text: str) -> None:
        """Keep what is typed and not sent."""
        if text == self.unsent or (self.chat is None and not text.strip()):
            return
        self._tree.chat = self.store.set_unsent(self._tree.begun().id, text)

    # Replies. Each is a stream of updates that ends with Ended.

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

    def saved_interrupt(self) -> None:
        """Keep everything at once, because the process is about to end."""
        if self._streaming is not None:
            self._streaming.cut_off()

    # The tree.

    def step(self, turn_id: int, by: int) -> None:
        """Show another version of a turn, and what follows it."""
        self._idle()
        self._tree.step(turn_id, by)

    # Tuning.

    async def tune(self, **changes: Any) -> Tuning:
        """Change method, depth, rule or fields of ``sampling`` from the next round on.

        The sampling is this conversation's; the rest holds for all.
        """
        tuning = await self._dials.tune(changes, self.sampling)
        if "sampling" in changes:
            self._tree.set_sampling({**self.sampling, **changes["sampling"]})
        for what in described(changes):
            self._live.mark(what)
        return tuning

    async def close(self) -> None:
        """Keep everything and let go of the store; the engine is its maker's to close."""
        self.saved_interrupt()
        await self._energies.close()
        self.store.close()

    # Inside.

    def _idle(self) -> None:
        if self.busy:
            raise BadOptionError(BUSY)

    def _there(self) -> Chat:
        if self.chat is None:
            raise BadOptionError("nothing was said in this conversation yet")
        return self.chat

    async def _streamed(self, begin: Callable[[Making], Beginning]) -> AsyncIterator[Update]:
        """Ask the engine, and pass on what comes."""
        self._idle()
        making = self._making()
        beginning = begin(making)
        self._dials.settle(self.sampling)
        self._live.asked()
        watch = self._energies.watch()
        call = self.engine.reply(beginning.request(self.system, self.config.reply, self.think))
        streaming = Streaming(beginning.reply, call, beginning.written, making, watch)
        self._streaming = streaming
        try:
            with awake(self.config.power.keep_awake):
                yield Began(beginning.prompt, beginning.shown)
                async for event in call:
                    self._live.see(event)
                    if streaming.message is not None:
                        break  # It was cut off from outside.
                    if isinstance(event, Failed):
                        self._loading.lost(event)
                    if isinstance(event, Prefilled):
                        self._loading.back()
                        if self._tree.drop(event.dropped_messages, beginning.asked):
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

    def _settled(self, id: int, energy: ReplyEnergy) -> None:
        """What a reply took is known for good."""
        making = self.store.message(id).making
        if making is None or (self._streaming is not None and self._streaming.reply.id == id):
            return
        turn = self._tree.change(
            self.store.set_making(id, replace(making, energy=energy.as_dict()))
        )
        if turn is not None:
            self.listener(Changed(turn))

    def _making(self) -> Making:
        choice, tuning = self._loading.choice or PairChoice(), self.tuning
        sampling = {name: value for name, value in tuning.sampling.items() if name != "seed"}
        return Making(
            model=lasting(choice.target),
            draft=lasting(choice.draft),
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
