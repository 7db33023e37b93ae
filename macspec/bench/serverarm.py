"""A server of this machine as an arm: starting it, and timing its replies."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, Self

from ..errors import ServerError, brief
from ..sampling import Sampling
from ..stats import ReplyCounter
from .macspecarm import WARM_UP
from .questions import Question, shortened
from .sample import ReplyRecorder, Written
from .server import Ended, Piece, Server


class ServerArm:
    """Replies of a server that speaks OpenAI's protocol.

    It is timed from here, so that the way there and back counts. Its template, its model and its
    precision are its own: where its prompt has another number of tokens, ``describe`` says so.

    Args:
        clock: seconds, the server's too.
    """

    def __init__(
        self, name: str, server: Server, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.name = name
        self._server, self._clock = server, clock
        self._strange: dict[str, tuple[int, int]] = {}
        self._counts_tokens: bool | None = None

    def why_not(self, question: Question, sampling: Sampling) -> str | None:
        if question.forced is not None:
            return "servers cannot decode along a recorded answer"
        if sampling.penalised or sampling.logit_bias:
            return "servers interpret penalties and biases differently"
        return None

    def prepare(self, questions: Sequence[Question], sampling: Sampling, ends: bool) -> None:
        for question in questions[:1]:
            self.write(shortened(question, WARM_UP), replace(sampling, seed=0), ends)

    def write(self, question: Question, sampling: Sampling, ends: bool) -> Written:
        start = self._clock()
        events = self._server.reply(
            question.task.messages,
            max_tokens=question.max_tokens,
            raw=question.task.raw,
            settings=_settings(sampling, ends),
        )
        with closing(events):
            found = list(events)
        pieces = [it for it in found if isinstance(it, Piece)]
        (ended,) = (it for it in found if isinstance(it, Ended))
        self._counts_tokens = ended.tokens is not None
        expected = len(question.ids)
        prompt_tokens = expected if ended.prompt_tokens is None else ended.prompt_tokens
        if prompt_tokens != expected:
            self._strange[question.id] = expected, prompt_tokens
        return _written(start, prompt_tokens, pieces, ended)

    def describe(self) -> Mapping[str, Any]:
        return {
            "program": "server",
            "address": str(self._server.address),
            "model": self._server.model,
            "tokens": "its pieces of text" if self._counts_tokens is False else "its own count",
            "prompt_tokens_here_and_there": self._strange or None,
        }

    def close(self) -> None:
        """Every reply has hung up by itself."""


def _settings(sampling: Sampling, ends: bool) -> dict[str, Any]:
    """The fields of a request; beyond OpenAI's own only those that ask for more than nothing."""
    settings = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "cache_prompt": False,
        "seed": None if sampling.seed is None else sampling.seed % 2**31,
        "top_k": sampling.top_k or None,
        "min_p": sampling.min_p or None,
        "ignore_eos": None if ends else True,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _written(start: float, prompt_tokens: int, pieces: Sequence[Piece], ended: Ended) -> Written:
    recorder = ReplyRecorder(start, ReplyCounter(prompt_tokens))
    recorder.counter.cached_tokens = ended.cached_tokens or 0
    for piece, tokens in zip(pieces, shares(pieces, ended.tokens), strict=True):
        if tokens:
            recorder.count(piece.at, tokens)
    text = "".join(piece.text for piece in pieces)
    written = recorder.written((), text, ended.reason, counts_passes=False)
    if not ended.drafted or ended.accepted is None or ended.tokens is None:
        return written
    # A pass brings what was accepted and one token more.
    passes = max(ended.tokens - ended.accepted, 1)
    stats = replace(
        written.stats,
        passes=passes,
        drafted=ended.drafted,
        accepted=ended.accepted,
        acceptance=ended.accepted / ended.drafted,
        tokens_per_pass=ended.tokens / passes,
    )
    return replace(written, stats=stats, counts_passes=True)


def shares(pieces: Sequence[Piece], tokens: int | None) -> list[int]:
    """How many tokens came with each piece, estimated where the server does not say.

    Servers send a piece a token, or a few tokens together, or hold some back; and some count the
    token that ends the turn. The count is shared out by length where it is not one a piece.
    """
    if tokens is None or not pieces or tokens - len(pieces) in (0, 1):
        one_each = [1] * len(pieces)
        if tokens is not None and one_each:
            one_each[-1] += tokens - len(pieces)
        return one_each
    length = sum(len(piece.text) for piece in pieces)
    done, taken, found = 0, 0, []
    for piece in pieces:
        done += len(piece.text)
        found.append(tokens * done // length - taken)
        taken += found[-1]
    return found


class Started:
    """A server that a command starts, for as long as the ``with`` lasts.

    Args:
        command: the program and its arguments.
        server: what it will be.
        patience: seconds until it must answer, its model loaded.

    Raises:
        ServerError: on entering: something answers there already, the command cannot be started,
            ends, or takes too long.
    """

    def __init__(self, command: Sequence[str], server: Server, patience: float = 180.0) -> None:
        self._command, self.server, self._patience = list(command), server, patience
        self._name = shlex.join(command)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if self.server.ready():
            raise ServerError(
                f"something already answers at {self.server.address}: stop it, or leave out the "
                "command that starts a server"
            )
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ServerError(f"cannot start {self._name}: {brief(error)}") from None
        try:
            self._wait(self._process)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server and whatever it started."""
        process, self._process = self._process, None
        if process is not None:
            _signal(process, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                process.wait()
        self._log.close()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + self._patience
        while not self.server.ready():
            if process.poll() is not None:
                raise ServerError(
                    f"{self._name} ended with status {process.returncode}{self._last_line()}"
                )
            if time.monotonic() > until:
                raise ServerError(
                    f"{self._name} does not answer at {self.server.address} after "
                    f"{self._patience:g} s{self._last_line()}"
                )
            time.sleep(0.1)

    def _last_line(self) -> str:
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(self._log.tell() - 2000, 0))
        lines = self._log.read().decode(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        return f"; it said last: {brief(ValueError(last))}" if last else ""


def _signal(process: subprocess.Popen[bytes], what: signal.Signals) -> None:
    """To the process and its children, which have a group of their own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, what)
