"""The engine in this process, driven by whoever reads its events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ..errors import MacspecError
from ..events import Finished
from .call import Call
from .client import EngineClient
from .engine import Engine
from .messages import (
    Answer,
    Failed,
    Loaded,
    PairChoice,
    ReplyRequest,
    Status,
    Tuned,
    Unloaded,
    Weigh,
    Weighed,
)
from .server import between_rounds


class InProcessEngine(EngineClient):
    """An ``EngineClient`` without a process: reading a reply's next event runs its next round.

    So it costs nothing beside the session itself. Everything happens on the caller's thread, which
    must always be the same; all but replies is done at once, and a reply that nobody reads stands
    still. What an event does to its reader, an interrupt or an error that is not for users, is
    raised as it is, and ends the reply there.

    Args:
        engine: None: a new one.
        told: told a load's events as they happen; who reads the call gets them afterwards.
    """

    def __init__(
        self, engine: Engine | None = None, told: Callable[[Answer], None] = lambda event: None
    ) -> None:
        self.engine = engine or Engine()
        self._told = told
        self._reply: Driven | None = None

    def start(self) -> None:
        pass

    def load(self, choice: PairChoice) -> Call:
        call = Call(Loaded)

        def report(event: Answer) -> None:
            call.put(event)
            self._told(event)

        return _at_once(call, lambda: self.engine.load(choice, report))

    def unload(self) -> Call:
        self.engine.unload()
        return _at_once(Call(Unloaded), Unloaded)

    def reply(self, request: ReplyRequest) -> Call:
        self._reply = Driven(self.engine, request)
        return self._reply

    def tune(self, **changes: Any) -> Call:
        return _at_once(Call(Tuned), lambda: Tuned(self.engine.tune(changes)))

    def status(self) -> Call:
        return _at_once(Call(Status), self.engine.status)

    def weigh(self, request: ReplyRequest, said: tuple[int, ...], tokens: tuple[int, ...]) -> Call:
        return _at_once(Call(Weighed), lambda: self.engine.weigh(Weigh(request, said, tokens)))

    def interrupt(self) -> None:
        if self._reply is not None:
            self._reply.stop()

    def close(self) -> None:
        self.engine.close()


class Driven(Call):
    """A reply whose reader runs it. What cannot be asked is refused at once."""

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
        """Run the reply to its end, however long that takes."""
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
            stopped = Failed("stopped", "it was stopped before it was done")
            self.put(self._engine.stop() if self._begun else stopped)
            return
        self._begun = self._border = True  # So it stands if this is where the reply breaks off.
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


def _at_once(call: Call, work: Callable[[], Answer]) -> Call:
    try:
        call.put(work())
    except MacspecError as error:
        call.put(Failed("refused", str(error)))
    return call
