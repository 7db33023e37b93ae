"""Commands run in this process, with the real pair or with a scripted session."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from scripted_run import Outcome, Script

from macspec.cli.main import main


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing on standard input, no debugging, and Ctrl-C as pytest wants it afterwards."""
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.delenv("MACSPEC_DEBUG", raising=False)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Settings, conversations and caches of a test alone."""
    monkeypatch.setenv("MACSPEC_HOME", str(tmp_path))
    return tmp_path


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


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Script]:
    """Replaces the engine: ``script("a", "b")`` makes ``run`` reply so."""

    def install(
        *deltas: str | tuple[str, str] | BaseException, notices: Sequence[str] = ()
    ) -> Script:
        engine = Script(deltas, notices)
        for name in ("Engine", "WaitingEngine"):
            monkeypatch.setattr(f"macspec.cli.run.{name}", lambda: engine)
        return engine

    return install
