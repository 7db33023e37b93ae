"""A command that an engine was asked, and what a reply to it has committed so far."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..events import (
    WENT_ON,
    Committed,
    Emitted,
    Finished,
    Notice,
    Prefilled,
    Text,
    between_rounds,
)
from ..stats import ReplyCounter
from .client import Call
from .messages import Answer, Command, Queued, ReplyRequest, SharedReply

REPLIES = ReplyRequest | SharedReply


@dataclass(slots=True)
class Asked:
    """A command, its call, and what a reply has committed.

    The events of a round reach the call together, so that another engine can go on after any.
    """

    command: Command
    call: Call
    numbers: list[int]
    """Under which it was sent, and what it waits for."""
    stopped: bool = False
    """Whether it was asked to end."""
    _went_on: bool = False
    _noticed: bool = False
    _seed: int = 0
    _tokens: list[Emitted] = field(default_factory=list)
    _counter: ReplyCounter = field(default_factory=ReplyCounter)
    _round: list[Answer] = field(default_factory=list)

    def take(self, event: Answer) -> None:
        """Pass an event on."""
        if self._went_on and self._repeats(event):
            return
        self._round.append(event)
        if between_rounds(event):
            for each in self._round:
                self._pass_on(each)
            self._round.clear()

    def go_on(self) -> Command | None:
        """The command for another engine, which goes on after what was passed on; None: that is
        impossible, for a call of a tool may be half read."""
        command = self.command
        self._round.clear()
        if not isinstance(command, ReplyRequest | SharedReply):
            return command
        if isinstance(command, SharedReply) and command.tools:
            return None
        if not self._noticed:
            self.call.put(Notice(WENT_ON))
        self._went_on = self._noticed = True
        if not self._tokens:
            return command
        request = command.request if isinstance(command, SharedReply) else command
        request = replace(request, committed=Committed(tuple(self._tokens), self._seed))
        return request if isinstance(command, ReplyRequest) else replace(command, request=request)

    def _repeats(self, event: Answer) -> bool:
        """Whether the first engine has said so already."""
        first = isinstance(event, Queued) or (isinstance(event, Prefilled) and self._tokens)
        return bool(first or event == Notice(WENT_ON))

    def _pass_on(self, event: Answer) -> None:
        match event:
            case Prefilled():
                self._seed = event.seed
            case Text():
                self._tokens += event.tokens
            case Notice(message) if message == WENT_ON:
                self._noticed = True
            case Finished() if self._went_on and isinstance(self.command, REPLIES):
                event = replace(event, stats=self._counter.stats())
        self._counter.see(event)
        self.call.put(event)
