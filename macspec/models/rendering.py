"""Running a chat template, which is a program of a stranger's, within limits."""

from __future__ import annotations

import ctypes
import resource
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import brief, is_panic

SECONDS, SPEED = 5.0, 20_000
"""For one conversation, and one more for each so many characters of it."""

MEMORY = 2**30
"""Bytes for one conversation, where the system can limit them."""

FACTOR, MARGIN = 20, 50_000
"""A rendered conversation is at most so often as long as its messages and so many characters."""


class LimitError(ValueError):
    """It took too long or too much memory."""


class _OverError(Exception):
    """Its time is over."""


def rendered(
    tokenizer: Any, turns: Sequence[Mapping[str, Any]], *, tokenize: bool = False, **settings: Any
) -> Any:
    """A conversation as text or tokens, up to where the assistant's turn begins.

    Raises:
        LimitError: it takes too long, or grows too much.
        Exception: whatever the template raises.
    """
    said = sum(len(str(turn.get("content") or "")) for turn in turns)
    settings["add_generation_prompt"] = True
    with limited(said):
        text = tokenizer.apply_chat_template(turns, tokenize=False, **settings)
        if len(text) > FACTOR * (said + MARGIN):
            raise LimitError(f"it makes {len(text)} characters of {said}")
        return tokenizer.encode(text, add_special_tokens=False) if tokenize else text


@contextmanager
def limited(size: int) -> Iterator[None]:
    """End what runs here, on a text of this size, with a LimitError once it takes too long or too
    much memory.

    Time is only limited between two steps of Python; memory on Linux, on the main thread.
    """
    with _memory(), _time(SECONDS + size / SPEED):
        try:
            yield
        except MemoryError:
            raise LimitError("it needs too much memory") from None
        except BaseException as error:
            if is_panic(error):
                raise ValueError(brief(error)) from error
            raise


@contextmanager
def _time(seconds: float) -> Iterator[None]:
    try:
        with (_alarm if _on_main_thread() else _thread_alarm)(seconds):
            yield
    except _OverError:
        raise LimitError(f"it takes over {seconds:.0f} s") from None


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def end(signum: int, frame: object) -> None:
        raise _OverError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _thread_alarm(seconds: float) -> Iterator[None]:
    """As ``_alarm``, on a thread that gets no signals."""
    thread, lock, ended = threading.get_ident(), threading.Lock(), False

    def end() -> None:
        with lock:
            if not ended:
                raising = ctypes.pythonapi.PyThreadState_SetAsyncExc
                raising(ctypes.c_ulong(thread), ctypes.py_object(_OverError))

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            ended = True
        timer.cancel()


@contextmanager
def _memory() -> Iterator[None]:
    if sys.platform != "linux" or not _on_main_thread():
        # The limit is the process's, so it would end what the main thread does meanwhile.
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    most = pages * resource.getpagesize() + MEMORY
    limits = [it for it in (most, soft, hard) if it != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
