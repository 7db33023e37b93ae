"""A conversation with an engine and a store, shared by screen and line mode."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from macspec.config.schema import Config
from macspec.errors import BadOptionError
from macspec.events import Finished, Prefilled, Prefilling
from macspec.plaintext import one_line
from macspec.power import Meter, ReplyEnergy, awake
from macspec.store import (
    ASSISTANT,
    RAW,
    USER,
    Chat,
    GenerationMetadata,
    Message,
    Store,
    model_name,
    stored_model,
)
from macspec.worker import EngineClient, Failed, PairChoice, PromptTokens, ReplyRequest
from macspec.worker.messages import Answer

from ..actions import BUSY, Situation
from ..panel.live import LiveStats
from ..panel.panelstate import PanelState
from .chatlist import Exports
from .comparison import Comparing, Comparison
from .energy import EnergyMeter
from .enginesetup import EngineSetup
from .replies import StreamingReply, request
from .titles import Titles, asked
from .tree import GONE, Tree
from .turns import Began, ChatNotice, Dropped, Ended, Turn, Update, Withdrawn, with_newest

COMPARING = "a comparison is running: wait for it, or stop it with Esc"

HISTORY = 200
"""Earlier prompts that can be recalled."""


class Conversation:
    """One conversation at a time. All calls from one event loop; what is not ``async`` is short.

    What cannot be done raises ``BadOptionError`` with a line for the user, and changes nothing.

    Args:
        engine: answers; whoever made it starts and closes it.
        meter: measures power; started once a pair is loaded. None: nothing is measured.
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
        self.measured: Callable[[Turn], None] = lambda turn: None
        """Called with a turn whose energy became known after it had ended."""
        self.think = config.reply.think
        """Reasoning on or off; None: the model's default."""
        self.first_run = not store.chats(1)
        """Whether there were no conversations yet."""
        self.tree = Tree(store, config.reply.system)
        self._exports = Exports(store)
        self._titles = Titles(engine, store)
        self._live = LiveStats()
        self._thrifty = config.control.objective == "energy"
        self._energy = EnergyMeter(meter, engine.ask) if self._thrifty else EnergyMeter(meter)
        self.setup = EngineSetup(engine, config, self.tree, self._live, clock, self._energy.start)
        self._work: StreamingReply | Comparing | None = None
        self._news = ""
        """What another window did to the conversation that is written to."""
        self._trouble: str | None = None
        """The problem of the store that was reported last."""

    # What there is to see.

    @property
    def chat(self) -> Chat | None:
        """The stored conversation; None while a new one is empty."""
        return self.tree.chat

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The path that is shown, without the new text of a reply that streams."""
        return self.tree.turns

    @property
    def busy(self) -> bool:
        return self._work is not None

    @property
    def situation(self) -> Situation:
        """What is going on."""
        return Situation(
            busy=self.busy,
            loading=self.panel().activity == "loading",
            turns=bool(self.turns),
            replied=any(turn.role == ASSISTANT for turn in self.turns),
            chat=self.chat is not None,
        )

    @property
    def unsent(self) -> str:
        """What was typed here and not sent."""
        return "" if self.chat is None else self.chat.unsent

    @property
    def sent(self) -> Sequence[str]:
        """Earlier prompts of all conversations, the newest last."""
        return self.store.prompts(HISTORY)

    def panel(self) -> PanelState:
        """The numbers now; for four times a second."""
        self.setup.poll(busy=self.busy)
        return self._energy.shown_in(self.setup.shown_in(self._live.state()))

    # The conversation as a whole.

    def open(self, id: int) -> None:
        """Open a conversation where it was left."""
        self._check_idle()
        self.tree.open(id)
        self._live.elsewhere(self._tokens())

    def new(self) -> None:
        """Start a conversation; it is stored once it has a message or unsent text."""
        self._check_idle()
        self._leave()

    def refresh(self) -> str:
        """Take over what another window changed in this conversation; returns that in a line."""
        return "" if self.busy else self.tree.elsewhere()

    def _claim(self, turn_id: int | None = None) -> int | None:
        """Before something is written: restore a conversation that another window deleted. Returns
        the id that a turn has now."""
        place = [turn.id for turn in self.turns].index(turn_id) if turn_id is not None else 0
        self._news = self.tree.claim()
        return None if turn_id is None else self.turns[place].id

    def rename(self, title: str) -> Chat:
        self.tree.chat = self.store.rename(self._stored().id, one_line(title))
        return self.tree.chat

    def fork(self, turn_id: int) -> Chat:
        """Continue in a copy of everything up to a turn; this conversation is unchanged."""
        self._check_idle()
        chat = self.store.fork(self.tree.message(turn_id).id)
        self.open(chat.id)
        return chat

    def delete(self) -> None:
        """Delete this conversation; the store's ``undo`` restores it."""
        self._check_idle()
        self.store.delete(self._stored().id)
        self._leave()

    def export(self, name: str) -> Path:
        """Write this conversation to a file, as ``Exports``."""
        return self._exports.write(self._stored().id, name)

    def step(self, turn_id: int, by: int) -> None:
        """Show another version of a turn, and what follows it."""
        self._check_idle()
        self.tree.step(turn_id, by)

    def save_unsent(self, text: str) -> None:
        """Keep what is typed and not sent."""
        if text == self.unsent or (self.chat is None and not text.strip()):
            return
        self.tree.chat = self.store.set_unsent(self.tree.begun().id, text)

    def show_message(self, id: int) -> None:
        """Show the path through a message."""
        self._check_idle()
        if all(turn.id != id for turn in self.turns):
            self.store.set_leaf(self._stored().id, self.store.newest_leaf(id))
            self.tree.open(self._stored().id)

    # Settings.

    def set_think(self, think: str | None) -> str | None:
        """Reasoning as in the settings, or None for the model's default, from the next reply on;
        returns why that has no effect on the pair that is loaded, if so."""
        self.think = think
        pair = self._live.pair
        if pair is None or (think or "auto") in self.thinking:
            return None
        name = model_name(pair.target)
        return f"{name} can't switch reasoning to {think}; saved for models that can"

    @property
    def thinking(self) -> list[str]:
        """The choices for reasoning that have an effect here, as far as is known."""
        pair = self._live.pair
        if pair is None:
            return ["auto", "on", "off"]
        return ["auto", *(("on", "off") if pair.thinks else ()), *pair.efforts]

    # Replies: each is a stream of updates that ends with ``Ended``.

    def ask(self, text: str) -> AsyncIterator[Update]:
        """Send a message at the end of the path."""
        self._check_idle()
        _check_text(text)
        if any(message.role == RAW for message in self.tree.thread):
            raise BadOptionError(
                "this text was generated with --raw and has no turns: start a new conversation"
            )
        self._claim()
        return self._stream(lambda: self.tree.add(text, self.tree.leaf, USER))

    def edit(self, turn_id: int, text: str) -> AsyncIterator[Update]:
        """Send another message in a turn's place; the turn stays as another version."""
        self._check_idle()
        _check_text(text)
        old = self.tree.message(turn_id)
        if old.role == ASSISTANT:
            raise BadOptionError("only your own messages can be edited; regenerate a reply instead")
        old = self.tree.message(self._claim(turn_id) or turn_id)
        return self._stream(lambda: self.tree.add(text, old.parent, old.role))

    def regenerate(self, turn_id: int | None = None) -> AsyncIterator[Update]:
        """Another reply in place of one, or to a message of the user's; None: the last."""
        self._check_idle()
        message = self.tree.answered(turn_id)
        message = self.tree.message(self._claim(message.id) or message.id)
        return self._stream(lambda: (message, None))

    def resume(self, turn_id: int) -> AsyncIterator[Update]:
        """Continue a reply that was stopped, cut off or too long."""
        self._check_idle()
        message = self.tree.message(turn_id)
        if message.role != ASSISTANT:
            raise BadOptionError("only a reply can be continued")
        message = self.tree.message(self._claim(turn_id) or turn_id)
        return self._stream(lambda: (message, None))

    async def entitle(self) -> bool:
        """Have the model name a new conversation, if nothing else is to be done; whether it did.
        The built-in pair is too small for that."""
        tree, chat = self.tree, self.chat
        big = self.setup.ready and self.setup.choice is not None and self.setup.choice.target
        if self.busy or not big or not self.config.history.titles:
            return False
        if chat is None or not self._titles.wanted(chat, tree.thread):
            return False
        before = request(tree.thread[:-1], tree.system, self.config.reply, self.think)
        named = await self._titles.give(chat, asked(before, tree.thread))
        if named is not None and self.chat is not None and self.chat.id == named.id:
            tree.chat = named
        return named is not None

    async def count(self, text: str) -> PromptTokens | None:
        """How long the prompt would be if this was sent; None where that is not known."""
        if not text.strip() or not self.setup.ready:
            return None
        message = Message(0, 0, self.tree.leaf, USER, text)
        settings, system = self.config.reply, self.tree.system
        asked = request([*self.tree.thread, message], system, settings, self.think)
        answers = [answer async for answer in self.engine.count_tokens(asked)]
        return next((it for it in answers if isinstance(it, PromptTokens)), None)

    def stop(self) -> None:
        """Stop the reply that streams, and keep its text, or stop the comparison."""
        if self._work is not None:
            self._work.stop()

    def saved_interrupt(self) -> None:
        """Save everything at once, because the process is about to end."""
        if isinstance(self._work, StreamingReply):
            self._work.cut_off()

    def compare(
        self, rule: str | None = None, turn_id: int | None = None
    ) -> AsyncIterator[Comparison]:
        """Answer a prompt again, or the last one, plain and speculative in turns, and keep nothing
        of it. Without a rule it is one under which the texts are the same."""
        self._check_idle()
        thread = self.tree.thread
        prompts = [
            n
            for n, message in enumerate(thread)
            if message.role != ASSISTANT and turn_id in (None, message.id)
        ]
        if not prompts:
            raise BadOptionError("there is nothing to answer yet: send a message first")
        end = prompts[-1] + 1
        comparing = Comparing(
            self.engine,
            self.setup,
            self._live,
            self._energy,
            prompt=thread[end - 1].text,
            request=request(thread[:end], self.tree.system, self.config.reply, self.think),
            rule=rule,
        )
        return self._compare(comparing)

    async def close(self) -> None:
        """Save everything and close the store, but not the engine."""
        self.saved_interrupt()
        await self._energy.close()
        self.store.close()

    def _check_idle(self) -> None:
        if self._work is not None:
            raise BadOptionError(COMPARING if isinstance(self._work, Comparing) else BUSY)

    def _stored(self) -> Chat:
        if self.chat is None:
            raise BadOptionError("this conversation is empty")
        return self.chat

    def _leave(self) -> None:
        self.tree.clear()
        self._live.elsewhere(0)

    def _tokens(self) -> int:
        """Tokens of the path up to its last reply, as that was made."""
        for message in reversed(self.tree.thread):
            if message.metadata is not None and message.metadata.stats is not None:
                stats = message.metadata.stats
                counts = (stats.get("prompt_tokens"), stats.get("tokens"))
                return sum(count for count in counts if isinstance(count, int))
        return 0

    async def _compare(self, comparing: Comparing) -> AsyncIterator[Comparison]:
        self._check_idle()
        self._titles.stop()
        self._work, shown = comparing, self._live.shown
        try:
            with awake(self.config.power.keep_awake):
                async for found in comparing.run():
                    yield found
        finally:
            comparing.stop()
            self._work = None
            self.setup.sync()
            self._live.resting()
            self._live.show(shown)

    async def _stream(
        self, begin: Callable[[], tuple[Message, Turn | None]]
    ) -> AsyncIterator[Update]:
        """Ask the engine to answer the message that ``begin`` gives, with its turn if it is new."""
        self._check_idle()
        self._titles.stop()
        before = self.tree.leaf
        message, prompt = begin()
        streaming = StreamingReply(
            self.tree, message, self._metadata(), lambda: self.setup.choice or PairChoice()
        )
        path, resumed = streaming.path, streaming.resumed
        asked = request(path, self.tree.system, self.config.reply, self.think, resumed)
        self.setup.sync()
        self._live.asked()
        streaming.watch = self._energy.watch()
        streaming.call = self.engine.reply(asked)
        self._work = streaming
        try:
            with awake(self.config.power.keep_awake):
                yield Began(prompt, streaming.shown)
                if self._news:
                    yield ChatNotice(self._news, "warning")
                if self._thrifty and self._energy.unmeasured is not None:
                    self._thrifty = False
                    yield ChatNotice(self._energy.unmeasured)
                async for event in self._answers(streaming, asked):
                    self._live.see(event)
                    if isinstance(event, Prefilled):
                        dropped = self.tree.drop(event.dropped_messages, path)
                        if dropped is not None:
                            yield Dropped(dropped)
                    update = streaming.take(event)
                    if update is not None:
                        yield update
        finally:
            self._work = None
            self._live.resting()
            ended = self.tree.change(streaming.close())
            self._energy.settle(streaming.watch, partial(self._settled, streaming.reply.id))
        if streaming.refusal is not None:
            self.tree.take_back(streaming.reply.id if prompt is None else message.id, before)
            yield Withdrawn(streaming.refusal)
            return
        if self._lost_chat():
            self._claim()
            yield ChatNotice(self._news, "warning")
        for notice in self._warnings():
            yield notice
        yield Ended(ended or streaming.shown)

    async def _answers(
        self, streaming: StreamingReply, asked: ReplyRequest
    ) -> AsyncIterator[Answer]:
        """The events of a reply, until it is over or was ended from outside.

        An engine that had crashed before is noticed only now; then a new one is asked.
        """
        alive = False
        while streaming.message is None:
            async for event in streaming.call:
                if streaming.message is not None:
                    return
                if isinstance(event, Prefilling | Prefilled | Finished):
                    alive = True
                    self.setup.back()
                if isinstance(event, Failed):
                    self.setup.lost(event)
                    if event.kind == "crashed" and not alive and not streaming.stopped:
                        alive = True
                        streaming.call = self.engine.reply(asked)
                        break
                yield event

    def _lost_chat(self) -> bool:
        """Whether the conversation was removed while the reply streamed."""
        return self.tree.stored()[0] == GONE

    def _settled(self, id: int, energy: ReplyEnergy) -> None:
        if isinstance(self._work, StreamingReply) and self._work.reply.id == id:
            return
        try:
            metadata = self.store.message(id).metadata
        except BadOptionError:
            return  # It was purged.
        if metadata is None:
            return
        now = with_newest(metadata.energy, energy.as_dict())
        turn = self.tree.change(self.store.set_metadata(id, replace(metadata, energy=now)))
        if turn is not None:
            self.measured(turn)

    def _metadata(self) -> GenerationMetadata:
        choice, tuning = self.setup.answering, self.setup.desired
        return GenerationMetadata(
            model=stored_model(choice.target),
            draft=stored_model(choice.draft),
            sampling={name: value for name, value in tuning.sampling.items() if name != "seed"},
            rule=tuning.rule,
            method=tuning.method,
            depth=tuning.depth,
            seed=tuning.sampling.get("seed"),
        )

    def _warnings(self) -> Iterator[ChatNotice]:
        """What went wrong meanwhile, each once."""
        refusal, trouble = self.setup.refusal(), self.store.trouble
        if refusal is not None:
            yield ChatNotice(refusal, "warning")
        if trouble is not None and trouble != self._trouble:
            yield ChatNotice(trouble, "warning")
        self._trouble = trouble


def _check_text(text: str) -> None:
    if not text.strip():
        raise BadOptionError("the prompt is empty")
