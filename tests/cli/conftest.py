"""Commands run in this process, with the real pair or with a scripted session."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import IO, Any

import pytest

from macspec.cli import main
from macspec.events import Emitted, Event, Finished, Prefilled, Round, Text
from macspec.stats import Counters


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing on standard input, no debugging, and Ctrl-C as pytest wants it afterwards."""
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.delenv("MACSPEC_DEBUG", raising=False)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    yield
    signal.signal(signal.SIGINT, before)


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


@pytest.fixture
def macspec(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Outcome]:
    """Runs a command and returns its status and output."""

    def run(*arguments: str) -> Outcome:
        with kept(sys.stdout, sys.stderr):
            status = main(arguments)
        captured = capfdbinary.readouterr()
        return Outcome(status, captured.out, captured.err.decode())

    return run


@contextmanager
def kept(*streams: IO[str]) -> Iterator[None]:
    """Give streams their files back, which a command may have pointed at nowhere."""
    files = [os.dup(stream.fileno()) for stream in streams]
    try:
        yield
    finally:
        for stream, file in zip(streams, files, strict=True):
            os.dup2(file, stream.fileno())
            os.close(file)


class Terminal(io.TextIOWrapper):
    """A standard output that says it is a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> str:
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs a command that succeeds and returns what a terminal was sent."""

    def run(*arguments: str) -> str:
        with monkeypatch.context() as patch:
            stream = Terminal()
            patch.setattr(sys, "stdout", stream)
            assert main(arguments) == 0
        return stream.shown

    return run


class Script:
    """A session that says what it is told to: a text, or a part and its text. An exception among
    them is raised there."""

    asked: dict[str, Any]
    remembered = False

    def __init__(self, deltas: Sequence[str | tuple[str, str] | BaseException]) -> None:
        self.deltas = deltas
        self.finished: Finished | None = None

    def reply(self, messages: Any, sampling: Any, **settings: Any) -> Iterator[Event]:
        self.asked = {"messages": messages, "sampling": sampling, **settings}
        return self._events()

    def close(self) -> None:
        pass

    def remember(self) -> None:
        self.remembered = True

    def _events(self) -> Iterator[Event]:
        counters = Counters(0.0, prompt_tokens=3)
        said: list[str] = []
        reason = "interrupted"
        try:
            yield Prefilled(3, 0, 0.5)
            for number, delta in enumerate(self.deltas, 1):
                if isinstance(delta, BaseException):
                    raise delta
                part, delta = delta if isinstance(delta, tuple) else ("answer", delta)
                said.append(delta)
                seconds = counters.count(0.5 * number, 1, 1, 1, 0.0)
                yield Text(delta, (Emitted(number, "draft"),), ((len(delta), "draft"),), part)
                yield Round((number,), "draft", 4, 1, 1, seconds, 0.0)
            reason = "end"
        finally:
            ids = tuple(range(1, len(said) + 1))
            self.finished = Finished(
                reason, "".join(said), ids, 7, "block", "auto", "auto", counters.stats()
            )
        yield self.finished


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Script]:
    """Replaces the engine: ``script("a", "b")`` makes ``run`` reply so."""

    def install(
        *deltas: str | tuple[str, str] | BaseException, notices: Sequence[str] = ()
    ) -> Script:
        session = Script(deltas)
        pair = SimpleNamespace(notices=tuple(notices), draft_off=None)
        monkeypatch.setattr("macspec.commands.run.load_pair", lambda *_, **__: pair)
        monkeypatch.setattr("macspec.commands.run.Session", lambda *_, **__: session)
        for kept in ("ledger", "corpus"):
            monkeypatch.setattr(f"macspec.commands.run.{kept}", lambda *_, **__: None)
        return session

    return install
