"""An engine without a model, for the real child's loop: ``python scripted_engine.py ARGUMENTS``.

What it does is written in the names of models and in the prompts that it is given.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from macspec.errors import BadOptionError, ModelBrokenError
from macspec.events import Emitted, Event, Finished, Prefilled, Round, Text
from macspec.stats import ReplyCounter
from macspec.worker.child import main
from macspec.worker.messages import (
    Answer,
    Loaded,
    LoadProgress,
    PairChoice,
    PairInfo,
    ReplyRequest,
    Status,
    Tuning,
)


class ScriptedEngine:
    """Replies with ``words(n)``, as fast or slow as the prompt says."""

    shared = None
    """It shares nothing."""

    def __init__(self) -> None:
        self._pair: PairInfo | None = None
        self._tuning = Tuning()
        self._finished: Finished | None = None
        self._idle_steps = 0

    def load(self, choice: PairChoice, report: Callable[[Answer], None]) -> Loaded:
        name = choice.target or "built-in"
        report(LoadProgress("finding"))
        if name == "broken":
            raise ModelBrokenError("broken is broken: get another one")
        if name == "crash":
            print("the metal is bent", file=sys.stderr, flush=True)
            os._exit(3)
        if name == "hang":
            time.sleep(1000)
        for step in range({"slow": 30, "endless": 100_000}.get(name, 2)):
            report(LoadProgress("reading", step, 100))
            time.sleep(0.01 if name in ("slow", "endless") else 0)
        self._pair = PairInfo(name, choice.draft, None, 4096, 1, 6)
        return Loaded(self._pair)

    def reply(self, request: ReplyRequest) -> Generator[Event, None, None]:
        if self._pair is None:
            raise BadOptionError("no model is loaded: choose one first")
        messages = request.messages
        prompt = messages if isinstance(messages, str) else messages[-1]["content"]
        how = prompt.split()
        return self._rounds(how, request.max_tokens or (5_000 if "long" in how else 50))

    def _rounds(self, how: list[str], length: int) -> Generator[Event, None, None]:
        said: list[str] = []
        counter = ReplyCounter()
        reason = "interrupted"
        try:
            for number in range(length):
                if "slowly" in how:
                    time.sleep(0.01)
                if number == 3 and "die" in how:
                    os.kill(os.getpid(), signal.SIGKILL)
                if number == 3 and "hang" in how:
                    time.sleep(1000)
                if number == 3 and "noise" in how:
                    noise(how[-1])
                if number == 3 and "memory" in how:
                    raise MemoryError
                if number == 3 and "fail" in how:
                    raise RuntimeError(f"cannot go on with {how}")
                if (number == 3 and "print" in how) or f"print-at-{number}" in how:
                    print("to standard output")
                    os.write(1, b"and below it\n")
                    print("to standard error", file=sys.stderr)
                word = self._word(number, "wide" in how)
                said.append(word)
                counter.add(1, float(number > 0))
                if number == 0:
                    yield Prefilled(3, 0, 0.0)
                drafter = "scripted" if number % 2 else None
                yield Text(word, (Emitted(number, drafter),), ((len(word), drafter),))
                depth = self._tuning.depth
                yield Round(
                    (number,), drafter, depth if isinstance(depth, int) else 0, 1, 0, 0.01, 0.0
                )
            reason = "length"
        finally:
            settings = self._tuning
            self._finished = Finished(
                reason,
                "".join(said),
                tuple(range(len(said))),
                0,
                settings.rule,
                settings.method,
                settings.depth,
                counter.stats(),
            )
        yield self._finished

    def _word(self, number: int, wide: bool) -> str:
        return f"{number} " + "x" * (10_000 if wide else 0)

    def stop(self) -> Finished:
        assert self._finished is not None
        return self._finished

    def tune(self, changes: Mapping[str, Any]) -> Tuning:
        values = {"method": "auto", "depth": "auto", "rule": "block", "sampling": {}, **changes}
        if values["depth"] == 99:
            raise BadOptionError("depth is 99; it must be auto or 0 to 32")
        self._tuning = Tuning(**values)
        return self._tuning

    def status(self) -> Status:
        why = f"{self._idle_steps} idle steps"
        return Status(self._pair, self._tuning, why, 0, 1, 3)

    def idle(self) -> Iterator[None]:
        while True:
            time.sleep(0.005)
            self._idle_steps += 1
            yield

    def unexpected(self, error: BaseException) -> None: ...

    def close(self) -> None:
        print("closed in order", file=sys.stderr, flush=True)


NOISE = {
    "bytes": b"\xff\x00\x80\n",
    "json": b'[1, {"Text": []}]\n',
    "strange": b'{"a": 1}\n',
    "deep": b"[" * 100_000 + b"\n",
    "numbers": b"[[1], 2]\n",
    "nothing": b"\n",
    "half": b'[1, {"Text": ["a',
}


def noise(kind: str) -> None:
    """Write what is no message to the pipe of the events, or close it."""
    events = int(sys.argv[2])
    if kind == "closed":
        os.close(events)
    else:
        os.write(events, NOISE[kind])


def words(count: int) -> str:
    """What it says when asked for so many tokens."""
    return "".join(f"{number} " for number in range(count))


if __name__ == "__main__":
    main(sys.argv[1:], ScriptedEngine)
