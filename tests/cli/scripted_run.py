"""A scripted engine for ``macspec run``, and what a command left behind."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from macspec.events import Emitted, Event, Finished, Notice, Prefilled, Round, Text
from macspec.sampling import Sampling
from macspec.stats import ReplyCounter
from macspec.worker.engine import Engine
from macspec.worker.messages import Answer, Loaded, PairChoice, PairInfo, ReplyRequest, Tuning


class Script(Engine):
    """Says texts, or parts and their texts. An exception among them is raised there."""

    asked: dict[str, Any]
    chosen: PairChoice

    def __init__(
        self, deltas: Sequence[str | tuple[str, str] | BaseException], notices: Sequence[str]
    ) -> None:
        super().__init__()
        self.deltas, self.notices = deltas, notices
        self.finished: Finished | None = None

    def load(self, choice: PairChoice, report: Callable[[Answer], None]) -> Loaded:
        self.chosen = choice
        for notice in self.notices:
            report(Notice(notice))
        return Loaded(PairInfo("target", None, None, 2048, 1, 3))

    def tune(self, changes: Mapping[str, Any]) -> Tuning:
        self.tuning = super().tune(changes)
        return self.tuning

    def reply(self, request: ReplyRequest) -> Generator[Event, None, None]:
        asked = {field.name: getattr(request, field.name) for field in fields(request)}
        self.asked = {**asked, "sampling": Sampling(**self.tuning.sampling)}
        return self._events()

    def stop(self) -> Finished:
        assert self.finished is not None
        return self.finished

    def _events(self) -> Generator[Event, None, None]:
        counter = ReplyCounter(prompt_tokens=3)
        said: list[str] = []
        reason = "interrupted"
        try:
            yield Prefilled(3, 0, 0.5)
            for number, delta in enumerate(self.deltas, 1):
                if isinstance(delta, BaseException):
                    raise delta
                part, delta = delta if isinstance(delta, tuple) else ("answer", delta)
                said.append(delta)
                counter.add(1, 0.5, drafted=1, accepted=1)
                yield Text(delta, (Emitted(number, "draft"),), ((len(delta), "draft"),), part)
                yield Round((number,), "draft", 4, 1, 1, 0.5, 0.0)
            reason = "end"
        finally:
            ids = tuple(range(1, len(said) + 1))
            self.finished = Finished(
                reason, "".join(said), ids, 7, "block", "auto", "auto", counter.stats()
            )
        yield self.finished


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    status: int
    out: bytes
    err: str

    @property
    def error(self) -> str:
        """The only error line."""
        lines = [line for line in self.err.splitlines() if "error" in line]
        assert len(lines) == 1, self.err
        return lines[0]
