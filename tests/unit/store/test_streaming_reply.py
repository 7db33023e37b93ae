"""A reply while it streams: saved as it comes, and marked if its process is gone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from soundstore import check_sound

from macspec.errors import BadOptionError
from macspec.store import (
    ASSISTANT,
    COMPLETE,
    CUT_OFF,
    OPEN,
    STOPPED,
    OpenReply,
    Store,
)
from macspec.store.streaming import SAVE_EVERY

PATIENCE = 60.0


@pytest.fixture
def reply(store: Store) -> OpenReply:
    chat = store.new_chat()
    return store.reply(chat.id, store.add(chat.id, None, "Why?").id)


def await_text(store: Store, id: int, text: str) -> None:
    until = time.monotonic() + PATIENCE
    while store.message(id).text != text:
        assert time.monotonic() < until, store.message(id).text
        time.sleep(0.02)


def test_text_is_saved_by_itself(reply: OpenReply, opened: Callable[..., Store]) -> None:
    assert SAVE_EVERY < 1
    other = opened()
    assert other.message(reply.id).state == OPEN
    reply.append("Bec")
    await_text(other, reply.id, "Bec")
    reply.append("ause")
    reply.append(".", "Hm.")
    await_text(other, reply.id, "Because.")
    assert other.message(reply.id).reasoning == "Hm."
    assert other.message(reply.id).state == OPEN
    reply.finish()


@pytest.mark.parametrize(
    ("reason", "state"),
    [("end", COMPLETE), ("length", COMPLETE), ("context", COMPLETE), ("interrupted", STOPPED)],
)
def test_how_a_reply_ends(
    reply: OpenReply, opened: Callable[..., Store], reason: str, state: str
) -> None:
    reply.append("Because.")
    reply.finish(reason)
    message = opened().message(reply.id)
    assert (message.text, message.state, message.reason) == ("Because.", state, reason)
    with pytest.raises(ValueError, match="ended"):
        reply.append("more")


def test_leaving_it_open_cuts_it_off(store: Store, reply: OpenReply) -> None:
    def break_off() -> None:
        with reply:
            reply.append("Bec")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    message = store.message(reply.id)
    assert (message.text, message.state, message.reason) == ("Bec", CUT_OFF, None)


def test_ending_twice_changes_nothing(store: Store, reply: OpenReply) -> None:
    with reply:
        reply.append("Bec")
        first = reply.finish("interrupted")
        assert reply.finish("interrupted") == first
    assert store.message(reply.id) == first


def test_a_reply_that_was_cut_off_goes_on(store: Store, opened: Callable[..., Store]) -> None:
    chat = store.new_chat()
    reply = store.reply(chat.id, store.add(chat.id, None, "Why?").id)
    reply.append("Bec", "H")
    reply.cut_off()
    again = opened().resume(reply.id)
    assert again.text == "Bec"
    assert store.message(reply.id).state == OPEN
    again.append("ause.", "m.")
    again.finish()
    message = store.message(reply.id)
    assert (message.text, message.reasoning, message.state) == ("Because.", "Hm.", COMPLETE)
    assert [hit.message for hit in store.search("because")] == [reply.id]


def test_a_reply_that_is_being_written_cannot_be_resumed(
    reply: OpenReply, opened: Callable[..., Store]
) -> None:
    with pytest.raises(BadOptionError, match="not a reply that can be continued"):
        opened().resume(reply.id)
    reply.finish()


def test_an_open_reply_of_a_living_process_is_left_alone(
    reply: OpenReply, opened: Callable[..., Store]
) -> None:
    reply.append("Bec")
    reply.save()
    assert opened().message(reply.id).state == OPEN
    reply.append("ause.")
    assert reply.finish().state == COMPLETE


def test_closing_the_store_cuts_off_what_is_open(
    store: Store, reply: OpenReply, opened: Callable[..., Store]
) -> None:
    reply.append("Bec")
    reply.save()
    store.close()
    message = opened().message(reply.id)
    assert (message.text, message.state) == ("Bec", CUT_OFF)


def test_files_of_dead_writers_are_swept(path: Path, opened: Callable[..., Store]) -> None:
    store = opened()
    chat = store.new_chat()
    reply = store.reply(chat.id, store.add(chat.id, None, "x").id)
    stale = path.parent / "tmpdead.writer"
    stale.touch()
    opened()
    writers = list(path.parent.glob("*.writer"))
    assert stale not in writers
    assert len(writers) == 1
    reply.finish()


CHILD = """
import itertools, os, sys, time
from pathlib import Path
from macspec.store import Store

log = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def note(*fields):
    os.write(log, " ".join(map(str, [time.monotonic(), *fields])).encode() + b"\\n")

store = Store(Path(sys.argv[1]), patience=60)
chat = store.new_chat()
note("chat", chat.id)
for turn in itertools.count():
    asked = store.add(chat.id, store.chat(chat.id).leaf, f"prompt {turn}")
    note("said", asked.id)
    reply = store.reply(chat.id, asked.id)
    note("open", reply.id)
    for number in range(80):
        note("text", number)
        reply.append(f"{number} ")
        time.sleep(0.004)
    reply.finish()
    note("done", reply.id)
"""


def kill_and_look(path: Path, log: Path, delay: float) -> None:
    """Kill a process that streams replies, and compare what is there with what it had written."""
    process = subprocess.Popen([sys.executable, "-c", CHILD, str(path), str(log)])
    until = time.monotonic() + PATIENCE
    while not log.exists() or b"open" not in log.read_bytes():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.005)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    process.wait()

    lines = [line.split() for line in log.read_text().splitlines(keepends=False)]
    times = [float(line[0]) for line in lines]
    # A machine that gives the process no time gives none to its saver either.
    stall = max((b - a for a, b in pairwise(times)), default=0.0)
    store = Store(path)
    assert store.trouble is None
    chat = int(next(line[2] for line in lines if line[1] == "chat"))
    messages = {message.id: message for message in store.messages(chat)}

    turn, committed, streaming = -1, {}, None
    for _, kind, value in lines:
        if kind == "said":
            turn += 1
            committed[int(value)] = f"prompt {turn}"
        elif kind == "open":
            streaming = int(value)
        elif kind == "done":
            committed[int(value)] = "".join(f"{number} " for number in range(80))
            streaming = None
    for id, text in committed.items():
        assert (messages[id].text, messages[id].state) == (text, COMPLETE)

    # At most one more of each, which was written and not yet noted.
    assert len(messages) - len(committed) <= 2
    for message in messages.values():
        assert message.state in (COMPLETE, CUT_OFF)
    if streaming is not None:
        started = max(n for n, line in enumerate(lines) if line[1] == "open")
        appended = [line for line in lines[started:] if line[1] == "text"]
        old = [line for line in appended if float(line[0]) < killed - 1 - stall]
        text = messages[streaming].text
        whole = "".join(f"{line[2]} " for line in appended)
        assert whole.startswith(text)
        assert text.startswith("".join(f"{line[2]} " for line in old))
        if messages[streaming].state == CUT_OFF:
            again = store.resume(streaming)
            again.append("and on")
            assert again.finish().text == text + "and on"
    assert [message.role for message in store.thread(chat)][1::2] == [ASSISTANT] * (
        len(store.thread(chat)) // 2
    )
    store.close()
    check_sound(path)


@pytest.mark.parametrize("delay", [0.05, 0.6, 2.2])
def test_kill_9_loses_at_most_a_second(path: Path, tmp_path: Path, delay: float) -> None:
    kill_and_look(path, tmp_path / "log", delay)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_80_kills_of_processes_on_one_store(path: Path, tmp_path: Path, part: int) -> None:
    moments = random.Random(part)
    for number in range(40):
        kill_and_look(path, tmp_path / f"log{number}", moments.uniform(0, 0.8))


def test_two_processes_stream_into_one_store_and_one_is_killed(path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(path)]
    other = subprocess.Popen([*command, str(tmp_path / "other")])
    try:
        kill_and_look_beside(path, tmp_path / "log", other)
    finally:
        other.kill()
        other.wait()


def kill_and_look_beside(path: Path, log: Path, other: subprocess.Popen[bytes]) -> None:
    """The killed one's reply is cut off, and the living one's is not."""
    killed = subprocess.Popen([sys.executable, "-c", CHILD, str(path), str(log)])
    logs = [log, log.with_name("other")]
    until = time.monotonic() + PATIENCE
    while not all(each.exists() and b"open" in each.read_bytes() for each in logs):
        assert time.monotonic() < until
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    chats = [int(each.read_text().splitlines()[0].split()[2]) for each in logs]
    store = Store(path, patience=PATIENCE)  # the living one writes all the time
    states = [{message.state for message in store.messages(chat)} for chat in chats]
    assert OPEN not in states[0]
    assert CUT_OFF not in states[1]
    assert other.poll() is None
    store.close()
