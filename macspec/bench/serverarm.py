"""A server of this machine as an arm: starting it, and timing its replies."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, pairwise
from typing import IO, Any

from ..errors import ServerError, brief
from ..sampling import Sampling
from ..stats import ReplyCounter
from .questions import Arm, Question
from .sample import ReplyRecorder, Written
from .server import Server, Streamed


class ServerArm(Arm):
    """Replies of a server that speaks OpenAI's protocol.

    It is timed from here, so that the way there and back counts. Its template, its model and its
    precision are its own: where its prompt has another number of tokens, ``describe`` says so.
    """

    def __init__(self, name: str, server: Server) -> None:
        self.name, self._server = name, server
        self._strange: dict[str, tuple[int, int]] = {}
        self._counts_tokens: bool | None = None

    def why_not(self, question: Question) -> str | None:
        if question.forced is not None:
            return "servers cannot decode along a recorded answer"
        return None

    def write(self, question: Question, sampling: Sampling, ends: bool) -> Written:
        start = self._server.clock()
        streamed = self._server.reply(
            question.task.messages,
            max_tokens=question.max_tokens,
            raw=question.task.raw,
            settings=_settings(sampling, ends),
        )
        self._counts_tokens = streamed.tokens is not None
        expected = len(question.ids)
        prompt_tokens = expected if streamed.prompt_tokens is None else streamed.prompt_tokens
        if prompt_tokens != expected:
            self._strange[question.id] = expected, prompt_tokens
        return _written(start, prompt_tokens, streamed)

    def describe(self) -> Mapping[str, Any]:
        return {
            "program": "server",
            "address": str(self._server.address),
            "model": self._server.model,
            "tokens": "its pieces of text" if self._counts_tokens is False else "its own count",
            "prompt_tokens_here_and_there": self._strange or None,
        }


def _settings(sampling: Sampling, ends: bool) -> dict[str, Any]:
    """The fields of a request."""
    settings = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "cache_prompt": False,
        "seed": None if sampling.seed is None else sampling.seed % 2**31,
        "ignore_eos": None if ends else True,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _written(start: float, prompt_tokens: int, it: Streamed) -> Written:
    counter = ReplyCounter(prompt_tokens, it.cached_tokens or 0)
    recorder = ReplyRecorder(start, counter)
    texts = [text for text, _ in it.pieces]
    for (_, at), tokens in zip(it.pieces, shares(texts, it.tokens), strict=True):
        if tokens:
            recorder.count(at, tokens)
    known = bool(it.drafted) and it.accepted is not None and it.tokens is not None
    if known:
        counter.drafted, counter.accepted = it.drafted or 0, it.accepted or 0
        # A pass brings what was accepted and one token more.
        counter.passes = max(counter.tokens - counter.accepted, 1)
    return recorder.written((), "".join(texts), it.reason, counts_passes=known)


def shares(texts: Sequence[str], tokens: int | None) -> list[int]:
    """How many tokens came with each piece, estimated where the server does not say.

    Servers send a piece a token, or a few tokens together, or hold some back; and some count the
    token that ends the turn. The count is shared out by length where it is not one a piece.
    """
    if tokens is None or not texts or tokens - len(texts) in (0, 1):
        one_each = [1] * len(texts)
        if tokens is not None and one_each:
            one_each[-1] += tokens - len(texts)
        return one_each
    lengths = [len(text) for text in texts]
    ends = [tokens * done // sum(lengths) for done in accumulate(lengths, initial=0)]
    return [end - begin for begin, end in pairwise(ends)]


@contextmanager
def started(command: Sequence[str], server: Server, patience: float = 180.0) -> Iterator[None]:
    """A server that a command starts, for as long as the ``with`` lasts.

    Its model must be loaded after ``patience`` seconds.

    Raises:
        ServerError: something answers there already, or the command cannot be started, ends, or
            takes too long.
    """
    if server.ready():
        raise ServerError(
            f"something already answers at {server.address}: stop it, or leave out the command "
            "that starts a server"
        )
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ServerError(f"cannot start {shlex.join(command)}: {brief(error)}") from None
        try:
            if trouble := _trouble(process, server, patience):
                raise ServerError(f"{shlex.join(command)} {trouble}{_last_line(log)}")
            yield
        finally:
            _end(process)


def _trouble(process: subprocess.Popen[bytes], server: Server, patience: float) -> str | None:
    """Wait until it is ready; why it will not be."""
    until = time.monotonic() + patience
    while not server.ready():
        if process.poll() is not None:
            return f"ended with status {process.returncode}"
        if time.monotonic() > until:
            return f"does not answer at {server.address} after {patience:g} s"
        time.sleep(0.1)
    return None


def _last_line(log: IO[bytes]) -> str:
    log.seek(0, os.SEEK_END)
    log.seek(max(log.tell() - 2000, 0))
    lines = log.read().decode(errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f"; it said last: {brief(ValueError(last))}" if last else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server and whatever it started, which have a group of their own."""
    for what in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, what)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
            return
