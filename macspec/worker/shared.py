"""Several replies over one pair: they take turns by rounds, and conversations keep their caches.

Every live reply has a session of its own, so that each is exactly what it would be alone. All of
them share the models' weights, the kernels and what was learned.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..constraint import Constraint, Constraints
from ..errors import BadOptionError
from ..events import Event, Finished, Text, between_rounds
from ..models.memory import wired
from ..models.prefill import PREFILL_CHUNK
from ..prompt import Prompt, Prompting
from ..session import Session
from ..settings import Settings
from ..text import common_prefix
from .messages import Answer, Failed, Queued, SharedReply
from .toolcalls import ToolReader

MOST = 8
"""Most replies that take turns; those that come later wait for one of them to end."""

KEPT = 16
"""Most conversations whose caches are kept, live ones included."""

WIDEST = 16
"""Characters of a prediction that are read for each position of the context."""

LONG = 2**14
"""Most characters that are tokenized between two rounds; longer texts are beside them."""

NOT_BEGUN = Failed("stopped", "stopped before it began")


class TurnClock:
    """Seconds in which a conversation had its turn: it stands still while others have theirs."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._since: float | None = None
        self._before = 0.0

    def __call__(self) -> float:
        return self._before + (0.0 if self._since is None else self._clock() - self._since)

    def begin(self) -> None:
        self._since = self._clock()

    def end(self) -> None:
        self._before, self._since = self(), None


@dataclass(slots=True, eq=False)
class Conversation:
    """A session whose caches outlive its reply."""

    session: Session
    clock: TurnClock
    positions: int = 0
    """Most positions that its caches have had to hold; they never shrink."""
    prompt: int = 0
    """Tokens of its newest prompt."""

    def shared(self, tokens: Sequence[int]) -> int:
        """How many of a prompt's first tokens it has read."""
        return common_prefix(self.session.decoder.tokens, tokens)

    def continues(self, tokens: Sequence[int]) -> bool:
        """Whether a prompt goes on with it, or asks the same again.

        Else it is kept for its own sake: most of what it has read would be lost.
        """
        shared = self.shared(tokens)
        return shared + 1 >= self.prompt or 2 * shared > len(self.session.decoder.tokens)


@dataclass(slots=True, eq=False)
class Pending:
    """A reply that waits or takes turns."""

    call: int
    command: SharedReply
    settings: Settings
    prompt: Prompt
    prediction: Sequence[int]
    tools: ToolReader
    constraint: Constraint | None
    positions: int
    """Most that it can need."""
    conversation: Conversation | None = None
    """None while it waits."""
    events: Generator[Event, None, None] | None = None


@dataclass(slots=True)
class Shared:
    """The replies that take turns, those that wait, and the conversations at rest.

    A reply waits while ``MOST`` others take turns, or while the caches of all of them could
    outgrow the memory; none overtakes another. A long text is tokenized before, on a thread, one
    after the other. Conversations at rest give way, the one first that was used longest ago.

    Args:
        session: with the loaded pair; each conversation gets a sibling of it.
        memory: bytes for the caches of all conversations.
        kv_bits: of the target's quantized caches.
    """

    session: Session
    memory: int
    kv_bits: int | None = None
    clock: Callable[[], float] = time.perf_counter
    waiting: deque[Pending] = field(default_factory=deque)
    live: deque[Pending] = field(default_factory=deque)
    tokenizing: dict[int, Future[Pending]] = field(default_factory=dict)
    """Calls whose text is long."""
    at_rest: list[Conversation] = field(default_factory=list)
    """The newest last."""
    _prompting: Prompting = field(init=False)
    _constraints: Constraints = field(init=False)
    _wired: ExitStack = field(default_factory=ExitStack)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "tokenizer"))

    def __post_init__(self) -> None:
        self._prompting = Prompting(self.session.pair)
        self._constraints = Constraints(self.session.pair)

    def __bool__(self) -> bool:
        return bool(self.live or self.waiting or self.tokenizing)

    @property
    def calls(self) -> list[int]:
        return [*(it.call for it in (*self.live, *self.waiting)), *self.tokenizing]

    @property
    def turn_of(self) -> int | None:
        """The call whose turn is next; None while all there are, are tokenized."""
        self._admit()
        return self.live[0].call if self.live else None

    @property
    def tokenized(self) -> list[int]:
        """Calls whose long text is tokenized: ``queue`` them."""
        return [call for call, it in self.tokenizing.items() if it.done()]

    def begin(self, call: int, command: SharedReply, settings: Settings) -> Queued | None:
        """Queue a reply; None: its text is long, and ``tokenized`` has it in a while.

        Raises:
            BadOptionError, ContextOverflowError: it is invalid or too long.
        """
        make = partial(self._pending, call, command, settings)
        if _characters(command) <= LONG:
            return self._queue(make())
        self.tokenizing[call] = self._thread.submit(make)
        return None

    def queue(self, call: int) -> Queued:
        """Queue a reply whose text is tokenized; errors as ``begin``."""
        return self._queue(self.tokenizing.pop(call).result())

    def wait(self, seconds: float) -> None:
        """Wait until a text is tokenized, at most so long."""
        wait(self.tokenizing.values(), seconds, FIRST_COMPLETED)

    def _queue(self, it: Pending) -> Queued:
        self.waiting.append(it)
        return Queued(len(it.prompt.tokens))

    def _pending(self, call: int, command: SharedReply, settings: Settings) -> Pending:
        tools = json.loads(command.tools or "[]")
        prompt = self._prompt(command, tools)
        context, asked = self.session.pair.context, command.request.max_tokens
        if asked is not None and asked < 1:
            raise BadOptionError(f"max_tokens is {asked}; it must be at least 1")
        size = len(prompt.tokens)
        tokenizer: Any = self.session.pair.target.tokenizer
        # More of it than the reply can be long is of no use.
        expected = command.prediction[: WIDEST * context]
        prediction = tokenizer.encode(expected, add_special_tokens=False) if expected else []
        return Pending(
            call,
            command,
            settings,
            prompt,
            prediction[:context],
            ToolReader(tokenizer, tools),
            self._constraints.of(command.schema, prompt.part) if command.schema else None,
            positions=context if asked is None else min(size + asked, context),
        )

    def _prompt(self, command: SharedReply, tools: list[Any]) -> Prompt:
        request, pair = command.request, self.session.pair
        if request.raw:
            return self._prompting.raw(request.messages, pair.context)
        if tools and not pair.target.tokenizer.has_tool_calling:
            raise BadOptionError(
                f"{pair.target.name} calls no tools in a form that is known: leave them out, or "
                "choose a model whose chat template has tools"
            )
        return self._prompting.chat(
            request.messages,
            pair.context,
            1,
            think=request.think,
            on_overflow="refuse",
            resume=request.resume,
            boundaries=self.session.decoder.checkpoints,
            tools=tools,
        )

    def turn(self, put: Callable[[int, Answer], None]) -> Finished | None:
        """A round of the reply whose turn it is; how it ended, if it has.

        What the round raises ends the reply and drops its conversation.

        Args:
            put: takes the events and their call.
        """
        it = self.live.popleft()
        conversation = it.conversation
        assert conversation is not None
        try:
            finished = self._round(it, conversation, put)
        except BaseException:
            self._rest()
            raise
        if finished is None:
            self.live.append(it)
        else:
            self._keep(conversation)
        return finished

    def _round(
        self, it: Pending, conversation: Conversation, put: Callable[[int, Answer], None]
    ) -> Finished | None:
        session = conversation.session
        # A prompt is read in smaller parts where others wait for their turn.
        several = bool(self.live)
        session.decoder.chunk.most = PREFILL_CHUNK if several else session.pair.plan.chunk
        conversation.clock.begin()
        try:
            if it.events is None:
                it.events = self._reply(it, session)
            for event in it.events:
                if isinstance(event, Finished):
                    for rest in it.tools.finish():
                        put(it.call, rest)
                    return event
                for part in it.tools.read(event) if isinstance(event, Text) else (event,):
                    put(it.call, part)
                if between_rounds(event):
                    return None
        finally:
            conversation.clock.end()
        raise AssertionError("a reply ends with Finished")

    def _reply(self, it: Pending, session: Session) -> Generator[Event, None, None]:
        settings, request = it.settings, it.command.request
        session.method, session.depth = settings.method, settings.depth
        session.rule = settings.rule
        return session.reply(
            it.prompt,
            settings.sampling,
            max_tokens=request.max_tokens,
            stop=request.stop,
            forced=request.forced,
            learn=request.learn,
            prediction=it.prediction,
            logprobs=it.command.logprobs,
            constraint=it.constraint,
            committed=request.committed,
        )

    def stop(self, call: int) -> Finished | Failed:
        """End a reply, wherever it is; it keeps its text."""
        if call in self.tokenizing:
            self.tokenizing.pop(call).cancel()
            return NOT_BEGUN
        for queue in (self.live, self.waiting):
            for it in queue:
                if it.call == call:
                    queue.remove(it)
                    return self._stopped(it)
        raise LookupError(call)

    def _stopped(self, it: Pending) -> Finished | Failed:
        if it.conversation is None:
            return NOT_BEGUN
        session = it.conversation.session
        session.close()
        if session.cached_tokens:
            self._keep(it.conversation)
        self._rest()
        if it.events is None or session.finished is None:
            return NOT_BEGUN
        return session.finished

    def close(self) -> None:
        """End all replies and forget all conversations."""
        for call in self.calls:
            self.stop(call)
        self._thread.shutdown(wait=False)
        self.at_rest.clear()

    def _admit(self) -> None:
        """Let those that wait take turns, as far as there is room."""
        while self.waiting and len(self.live) < MOST:
            it = self.waiting[0]
            conversation = self._place(it)
            if conversation is None:
                return
            self.waiting.popleft()
            if not self.live:
                self._wired.enter_context(wired())
            conversation.positions = max(conversation.positions, it.positions)
            conversation.prompt = len(it.prompt.tokens)
            it.conversation = conversation
            self.live.append(it)

    def _place(self, it: Pending) -> Conversation | None:
        """The conversation at rest that a prompt continues, or a new one; None: no memory is
        left."""
        tokens = it.prompt.tokens
        found = [one for one in reversed(self.at_rest) if one.continues(tokens)]
        best = max(found, key=lambda one: one.shared(tokens), default=None)
        if best is not None:
            self.at_rest.remove(best)
        needed = max(it.positions, 0 if best is None else best.positions)
        while self.at_rest and not self._fits(needed):
            del self.at_rest[0]
        if self.live and not self._fits(needed):
            if best is not None:
                self._keep(best)
            return None
        if best is not None:
            return best
        clock = TurnClock(self.clock)
        return Conversation(self.session.sibling(clock), clock)

    def _fits(self, positions: int) -> bool:
        """Whether the caches of one more conversation fit beside the others."""
        held = [it.positions for it in (*self._conversations(), *self.at_rest)]
        caches = sum(self.session.pair.caches(it, self.kv_bits) for it in (positions, *held))
        return len(held) < KEPT and caches <= self.memory

    def _conversations(self) -> list[Conversation]:
        return [it.conversation for it in self.live if it.conversation is not None]

    def _keep(self, conversation: Conversation) -> None:
        self.at_rest.append(conversation)
        self._rest()

    def _rest(self) -> None:
        if not self.live:
            self._wired.close()


def _characters(command: SharedReply) -> int:
    """How long the texts of a request are."""
    messages = command.request.messages
    texts = [messages] if isinstance(messages, str) else [it for m in messages for it in m.values()]
    return sum(map(len, (*texts, command.prediction, command.tools)))
