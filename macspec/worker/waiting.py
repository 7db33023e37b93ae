"""An engine in a child process, asked as if it were in this one: calls wait, and failures raise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from ..errors import EngineError
from ..events import Event, Finished
from .client import Call
from .messages import Answer, Failed, Loaded, LoadProgress, PairChoice, ReplyRequest, Report
from .process import ProcessEngine


class WaitingEngine:
    """For a program that may be interrupted anywhere: the child never is.

    Methods are those of ``worker.engine.Engine``, and raise EngineError.
    """

    def __init__(self) -> None:
        self._engine = ProcessEngine()
        self._reply: Call | None = None

    def load(self, choice: PairChoice, report: Report) -> Loaded:
        for event in self._engine.load(choice):
            _check(event)
            report(event)
        assert isinstance(event, Loaded)
        return event

    def tune(self, changes: Mapping[str, Any]) -> None:
        _check(self._engine.tune(**changes).result())

    def reply(self, request: ReplyRequest) -> Iterator[Event]:
        self._reply = self._engine.reply(request)
        for event in self._reply:
            _check(event)
            if not isinstance(event, LoadProgress | Loaded):  # of an engine that was lost
                yield cast("Event", event)

    def stop(self) -> Finished | None:
        """End the reply, if it has not ended, and return how; None if the engine was lost."""
        if self._reply is None:
            return None
        self._reply.stop()
        last = self._reply.result()
        return last if isinstance(last, Finished) else None

    def close(self) -> None:
        self._engine.close()


def _check(event: Answer) -> None:
    if isinstance(event, Failed):
        raise EngineError(event.message)
