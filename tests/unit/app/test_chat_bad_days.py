"""A conversation whose engine fails in any way: told, nothing lost, and the next prompt works."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from conversing import Reading, ended, load, read, reading, text, told
from hostile import no_descriptors

from macspec.app.chat.conversation import Conversation
from macspec.app.chat.turns import Ended
from macspec.config import schema
from macspec.config.schema import Config
from macspec.store import COMPLETE, Store
from macspec.worker import ProcessEngine, watch

CHILD = Path(__file__).parents[1] / "worker" / "scripted_engine.py"
Shorten = Callable[..., None]
LONG = Config(reply=schema.Reply(max_tokens=100_000))


@pytest.fixture
async def conversation(tmp_path: Path) -> AsyncIterator[Conversation]:
    engine = ProcessEngine(program=(sys.executable, str(CHILD)), log=tmp_path / "engine.log")
    conversation = Conversation(engine, Store(tmp_path / "chats.db"), LONG)
    await load(conversation)
    yield conversation
    await conversation.close()
    engine.close()


def send(conversation: Conversation, number: int) -> None:
    assert isinstance(conversation.engine, ProcessEngine)
    pid = conversation.engine.pid
    assert pid is not None
    os.kill(pid, number)


async def said(it: Reading, line: str) -> None:
    await it.until(lambda updates: any(line in each for each in told(updates)))


def words_of(it: Reading) -> list[str]:
    return text(it.updates).split()


async def stopped(conversation: Conversation, it: Reading) -> None:
    """Stop as a person does, twice at most, and see that all that was said is on the disk."""
    for _ in range(3):
        conversation.stop()
        await asyncio.wait([it.task], timeout=4 * watch.OBEYED)
    updates = await it.all()
    assert isinstance(updates[-1], Ended)
    turn = updates[-1].reply
    assert turn.text == text(updates)
    assert turn.text == "".join(f"{number} " for number in range(len(turn.text.split())))
    assert conversation.store.message(turn.id).text == turn.text


async def works(conversation: Conversation) -> None:
    reply = conversation.ask("hello")
    async with reading(reply) as it:
        await it.until(lambda updates: len(text(updates)) > 9)
        await stopped(conversation, it)


async def test_a_stopped_engine_is_told_and_goes_on(
    conversation: Conversation, impatient: Shorten
) -> None:
    impatient("STOPPED")
    async with reading(conversation.ask("slowly")) as it:
        await it.until(lambda updates: words_of(it))
        send(conversation, signal.SIGSTOP)
        await said(it, "the engine is stopped by a signal: kill -CONT")
        send(conversation, signal.SIGCONT)
        await said(it, "the engine goes on")
        count = len(words_of(it))
        await it.until(lambda updates: len(words_of(it)) > count)
        await stopped(conversation, it)
    await works(conversation)


@pytest.mark.long
@pytest.mark.slow
async def test_an_engine_that_is_stopped_for_half_a_minute_goes_on(
    conversation: Conversation,
) -> None:
    async with reading(conversation.ask("slowly")) as it:
        await it.until(lambda updates: words_of(it))
        send(conversation, signal.SIGSTOP)
        begun = time.monotonic()
        await said(it, "the engine is stopped by a signal: kill -CONT")
        shown = text(it.updates)
        await asyncio.sleep(30 - (time.monotonic() - begun))
        assert text(it.updates) == shown
        send(conversation, signal.SIGCONT)
        await said(it, "the engine goes on")
        await it.until(lambda updates: len(text(updates)) > len(shown))
        await stopped(conversation, it)
        assert len([line for line in told(it.updates) if "signal" in line]) == 1
    await works(conversation)


@pytest.mark.slow
async def test_a_stopped_engine_can_be_left_at_once(conversation: Conversation) -> None:
    async with reading(conversation.ask("slowly")) as it:
        await it.until(lambda updates: words_of(it))
        send(conversation, signal.SIGSTOP)
        conversation.stop()
        await it.all()
        await stopped(conversation, it)
    await works(conversation)


async def test_a_hung_engine_is_told_ended_and_restarted(
    conversation: Conversation, impatient: Shorten
) -> None:
    impatient("ROUND", "OBEYED")
    async with reading(conversation.ask("hang")) as it:
        await said(it, "the engine has been silent for")
        await stopped(conversation, it)
        assert "the text so far is kept, and the next message restarts it" in told(it.updates)[-1]
    await works(conversation)


FAULTS = {
    **{str(each): "slowly" for each in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)},
    **dict.fromkeys(("stopped", "stopped for a moment", "no descriptors"), "slowly"),
    **{f"noise {kind}": f"noise {kind}" for kind in ("bytes", "json", "half", "deep", "closed")},
    **{each: each for each in ("hang", "memory")},
}
"""What can happen to an engine, and the prompt with which it does."""


async def happen(conversation: Conversation, it: Reading, fault: str, pause: float) -> None:
    if fault.isdecimal():
        send(conversation, int(fault))
    elif fault == "stopped":
        send(conversation, signal.SIGSTOP)
    elif fault == "stopped for a moment":
        send(conversation, signal.SIGSTOP)
        await asyncio.sleep(pause)
        send(conversation, signal.SIGCONT)
    elif fault == "no descriptors":
        with no_descriptors():
            send(conversation, signal.SIGKILL)
            await it.all()


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "count"),
    [(0, 1), *(pytest.param(seed, 50, marks=pytest.mark.slow) for seed in range(1, 5))],
)
async def test_random_faults_lose_nothing(
    conversation: Conversation, impatient: Shorten, seed: int, count: int
) -> None:
    """All that was shown is on the disk, the last half second, too; the next prompt works."""
    impatient("STOPPED", "OBEYED")
    choice = random.Random(seed)
    for _ in range(count):
        fault, prompt = choice.choice(list(FAULTS.items()))
        async with reading(conversation.ask(prompt)) as it:
            await it.until(lambda updates, it=it: words_of(it) or it.task.done())
            assert words_of(it), fault
            await asyncio.sleep(choice.uniform(0, 0.05))
            await happen(conversation, it, fault, choice.uniform(0, 0.3))
            await stopped(conversation, it)
    await works(conversation)
    messages = conversation.store.messages(conversation.chat.id)
    assert len(messages) == 2 * count + 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few pages, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        done = False
    if not done:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


async def test_a_disk_that_fills_up_is_told_and_the_text_is_kept(
    conversation: Conversation, small_disk: Path
) -> None:
    store = Store(small_disk / "chats" / "chats.db")
    full = Conversation(conversation.engine, store, Config(reply=schema.Reply(max_tokens=100)))
    await load(full)
    updates = await read(full.ask("wide"))
    turn = ended(updates)
    assert turn.state == COMPLETE
    assert len(turn.text) > 900_000
    assert any("the disk is full; free some space" in line for line in told(updates))
    assert ended(await read(full.ask("hello"))).state == COMPLETE
    assert store.message(turn.id).text == turn.text
    store.close()
