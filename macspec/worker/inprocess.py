"""The engine in this process, run by whoever reads its events."""

from __future__ import annotations

import asyncio

from ..errors import MacspecError
from ..events import Finished
from .child import STOPPED_EARLY, between_rounds, carry_out
from .client import Call, EngineClient
from .engine import Engine
from .messages import ENDS, Answer, Command, Failed, ReplyRequest, Report


class InProcessEngine(EngineClient):
    """An engine without a process: reading a reply's next event runs its next round.

    So it adds no cost to the session's. Everything runs on the caller's thread, always the same
    one: replies when they are read, all else at once. Unexpected errors and interrupts are raised
    where they happen and end the reply there.

    Args:
        on_event: called with a load's events as they happen; its call has them only afterwards.
    """

    def __init__(self, engine: Engine | None = None, on_event: Report = lambda event: None) -> None:
        self.engine = engine or Engine()
        self._on_event = on_event
        self._reply: InProcessReply | None = None

    def start(self) -> None:
        pass

    def ask(self, command: Command) -> Call:
        if isinstance(command, ReplyRequest):
            self._reply = InProcessReply(self.engine, command)
            return self._reply
        call = Call(ENDS[type(command)])

        def report(event: Answer) -> None:
            call.put(event)
            self._on_event(event)

        try:
            call.put(carry_out(self.engine, command, report))
        except MacspecError as error:
            call.put(Failed("refused", str(error)))
        return call

    def interrupt(self) -> None:
        if self._reply is not None:
            self._reply.stop()

    def close(self) -> None:
        self.engine.close()


class InProcessReply(Call):
    """A reply that runs as it is read. An invalid request is refused at once."""

    def __init__(self, engine: Engine, request: ReplyRequest) -> None:
        super().__init__(Finished, self._halt)
        self._engine = engine
        self._halted = False
        self._begun = False
        self._border = True
        try:
            self._reply = engine.reply(request)
        except MacspecError as error:
            self.put(Failed("refused", str(error)))

    def result(self, timeout: float | None = None) -> Answer:
        """Run the reply to its end, whatever the timeout."""
        while not self.done:
            self._step()
        return super().result()

    def __next__(self) -> Answer:
        if not self._events and not self.done:
            self._step()
        return super().__next__()

    async def __anext__(self) -> Answer:
        await asyncio.sleep(0)
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None

    def _halt(self) -> None:
        self._halted = True

    def _step(self) -> None:
        if self._halted and self._border:
            stopped = Failed("stopped", STOPPED_EARLY)
            self.put(self._engine.stop() if self._begun else stopped)
            return
        self._begun = self._border = True  # This stays if the reply breaks off here.
        try:
            event = next(self._reply, None)
        except MacspecError as error:
            self.put(Failed("refused", str(error)))
            return
        if event is None:
            self.put(Failed("stopped", "the next reply began before this one ended"))
            return
        self._border = between_rounds(event)
        self.put(event)
