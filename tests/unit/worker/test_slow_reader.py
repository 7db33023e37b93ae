"""A reader who is late holds nothing up for long, and finds everything."""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from children import SCRIPTED, eventually

from macspec.events import Finished, Text
from macspec.worker.child import HELD, Outbox
from macspec.worker.messages import FORMAT, PairChoice, ReplyRequest, Stop, decode, encode

WIDE = 10_000
"""Characters in each of the scripted engine's wide words, at least."""


def text_of(lines: list[tuple[int, Any]]) -> str:
    return "".join(event.delta for _, event in lines if isinstance(event, Text))


class Child:
    """A child whose events nobody reads until they are asked for."""

    def __init__(self, output: Path) -> None:
        theirs_in, self.commands = os.pipe()
        self.events, theirs_out = os.pipe()
        ends = (theirs_in, theirs_out)
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                [*SCRIPTED, *map(str, ends), str(os.getpid()), FORMAT],
                pass_fds=ends,
                stderr=file,
            )
        for end in ends:
            os.close(end)
        self.lines: list[tuple[int, Any]] = []
        self._rest = b""

    def send(self, call: int, command: Any) -> None:
        os.write(self.commands, encode(call, command))

    def read(self, until: type[Any] = Finished) -> list[tuple[int, Any]]:
        """Everything up to the first event of a kind, and what came with it."""
        while not any(isinstance(event, until) for _, event in self.lines):
            assert select.select([self.events], [], [], 60)[0], "nothing more comes"
            *whole, self._rest = (self._rest + os.read(self.events, 2**20)).split(b"\n")
            self.lines += map(decode, whole)
        return self.lines


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    started = Child(tmp_path / "output")
    yield started
    os.close(started.commands)
    os.close(started.events)
    assert started.process.wait(60) == 0


def test_a_reply_that_fits_the_buffer_is_not_held_up(child: Child, tmp_path: Path) -> None:
    count = HELD // WIDE // 2
    child.send(1, PairChoice())
    child.send(2, ReplyRequest(f"wide print-at-{count - 1}", max_tokens=count))
    # It prints in its last round, with nobody reading.
    assert eventually(lambda: b"standard error" in (tmp_path / "output").read_bytes())
    lines = child.read()
    assert len(lines[-1][1].token_ids) == count
    assert text_of(lines) == lines[-1][1].text


@pytest.mark.parametrize("late", [0.5, pytest.param(0.0, marks=pytest.mark.slow)])
def test_a_reply_beyond_the_buffer_arrives_whole(child: Child, late: float) -> None:
    count = 3 * HELD // WIDE // 2
    child.send(1, PairChoice())
    child.send(2, ReplyRequest("wide", max_tokens=count))
    time.sleep(late)
    lines = child.read()
    assert lines[-1][1].reason == "length"
    assert len(lines[-1][1].token_ids) == count
    assert text_of(lines) == lines[-1][1].text


def test_a_reply_that_waits_for_its_reader_can_be_stopped(child: Child) -> None:
    child.send(1, PairChoice())
    child.send(2, ReplyRequest("wide", max_tokens=10 * HELD // WIDE))
    child.read(until=Text)
    time.sleep(0.5)
    child.send(0, Stop(2))
    time.sleep(0.2)
    last = (lines := child.read())[-1][1]
    assert last.reason == "interrupted"
    assert text_of(lines) == last.text
    # What waits is bounded: by the buffer, the pipe, and the round in which it filled.
    assert len(last.text) < HELD + 2 * 2**20


def test_a_full_buffer_waits_for_room_or_for_a_reason_not_to() -> None:
    reader, writer = os.pipe()
    outbox = Outbox(writer)
    outbox.make_room(lambda: pytest.fail("there is room"))
    sent = 0
    while outbox_size(outbox) < HELD:
        outbox.put(sent, Text("x" * WIDE, ()))
        outbox.flush()
        sent += 1
    outbox.make_room(lambda: True)

    received: list[bytes] = []
    thread = threading.Thread(target=drain, args=(reader, received.append))
    thread.start()
    outbox.make_room(lambda: False)
    assert outbox_size(outbox) < HELD
    assert eventually(lambda: outbox.flush() or not outbox)
    os.close(writer)
    thread.join(60)
    numbers = [decode(line)[0] for line in b"".join(received).splitlines()]
    assert numbers == list(range(sent))


def outbox_size(outbox: Outbox) -> int:
    return len(outbox._held)


def drain(descriptor: int, keep: Callable[[bytes], None]) -> None:
    while data := os.read(descriptor, 2**16):
        keep(data)
    os.close(descriptor)
