"""A conversation whose engine fails in any way: told, nothing lost, and the next prompt works."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from conversing import Reading, ended, load, read, reading, text, told

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


async def test_a_hung_engine_is_told_ended_and_restarted(
    conversation: Conversation, impatient: Shorten
) -> None:
    impatient("ROUND", "OBEYED")
    async with reading(conversation.ask("hang")) as it:
        await said(it, "the engine has been silent for")
        await stopped(conversation, it)
        assert "the text so far is kept, and the next message restarts it" in told(it.updates)[-1]
    await works(conversation)


@pytest.mark.parametrize("count", [1, pytest.param(20, marks=pytest.mark.slow)])
async def test_random_faults_lose_nothing(
    conversation: Conversation, count: int, impatient: Shorten
) -> None:
    impatient("STOPPED", "OBEYED", "ROUND")
    choice = random.Random(count)
    prompts = ["slowly", "slowly", "hang", "noise bytes", "noise closed", "memory"]
    faults = [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGSEGV]
    for _ in range(count):
        prompt = choice.choice(prompts)
        async with reading(conversation.ask(prompt)) as it:
            await it.until(lambda updates, it=it: words_of(it) or it.task.done())
            if prompt == "slowly":
                await asyncio.sleep(choice.uniform(0, 0.05))
                send(conversation, choice.choice(faults))
            await stopped(conversation, it)
        await works(conversation)
    messages = conversation.store.messages((conversation.turns and conversation.chat.id) or 1)
    assert len(messages) == 4 * count


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
