"""A conversation with engines that are no script: in this process, and in one that dies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conversing import ended, load, read, text, told

from macspec.app.chat.conversation import Conversation
from macspec.app.chat.turns import TextPiece
from macspec.config import schema
from macspec.config.schema import Config
from macspec.store import COMPLETE, CUT_OFF, STOPPED, Store
from macspec.worker import PairChoice, ProcessEngine

CHILD = Path(__file__).parents[1] / "worker" / "scripted_engine.py"
PAIR = PairChoice(learn=False)
GREEDY = Config(sampling=schema.Sampling(temperature=0.0), reply=schema.Reply(max_tokens=48))
HOTEL = "I need a hotel in London for three nights."


@pytest.fixture(scope="module")
def pocket_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessEngine]:
    """A real child, whose engine has the built-in pair."""
    engine = ProcessEngine(log=tmp_path_factory.mktemp("state") / "engine.log")
    yield engine
    engine.close()


@pytest.fixture
def child(tmp_path: Path) -> Iterator[ProcessEngine]:
    """The real loop of a child around a scripted engine."""
    engine = ProcessEngine(program=(sys.executable, str(CHILD)), log=tmp_path / "engine.log")
    yield engine
    engine.close()


async def test_the_built_in_pair_talks(pocket_engine: ProcessEngine) -> None:
    store = Store(None)
    conversation = Conversation(pocket_engine, store, GREEDY)
    await load(conversation, PAIR)
    updates = await read(conversation.ask(HOTEL))
    turn = ended(updates)
    assert text(updates) == turn.text
    assert sum(length for length, _ in turn.spans) == len(turn.text)
    assert turn.stats is not None
    assert turn.stats.tokens_per_pass is not None
    state = conversation.panel()
    assert (state.activity, state.tokens) == ("ready", turn.stats.tokens)
    assert state.memory_used
    assert state.kernels
    again = ended(await read(conversation.regenerate()))
    assert (again.text, again.sibling) == (turn.text, 2)
    follow = ended(await read(conversation.ask("And a train to Cambridge, please.")))
    making = store.message(follow.id).metadata
    assert making is not None
    assert making.stats is not None
    assert making.stats["cached_tokens"] > turn.stats.tokens


async def test_a_reply_that_was_stopped_goes_on_as_it_would_have(
    pocket_engine: ProcessEngine,
) -> None:
    conversation = Conversation(pocket_engine, Store(None), GREEDY)
    await load(conversation, PAIR)
    whole = ended(await read(conversation.ask(HOTEL))).text
    for _ in range(20):  # On a busy machine the reply may be over before it is stopped.
        said = ""
        async for update in conversation.regenerate():
            said += update.text if isinstance(update, TextPiece) else ""
            if said.endswith(tuple("aeiounst")) and " " in said:
                conversation.stop()
        cut = conversation.turns[-1]
        if cut.state == STOPPED:
            break
    assert cut.state == STOPPED
    assert whole.startswith(cut.text)
    resumed = ended(await read(conversation.resume(cut.id)))
    assert resumed.state == COMPLETE
    assert resumed.text.startswith(cut.text)
    assert sum(length for length, _ in resumed.spans) == len(resumed.text)


async def test_plain_and_speculative_are_equal_and_weighed(pocket_engine: ProcessEngine) -> None:
    conversation = Conversation(
        pocket_engine, Store(None), Config(reply=schema.Reply(max_tokens=24))
    )
    await load(conversation, PAIR)
    await read(conversation.ask(HOTEL))
    last = (await read(conversation.compare()))[-1]
    assert last.finished
    assert last.rule == "keyed"
    assert last.equal or (last.fork is not None and last.fork.near_tie)
    assert last.plain.tokens_per_pass == 1.0
    assert conversation.setup.desired.method == "auto"


async def test_a_child_that_dies_in_mid_reply(child: ProcessEngine) -> None:
    conversation = Conversation(child, Store(None), Config(reply=schema.Reply(max_tokens=8)))
    await load(conversation)
    updates = await read(conversation.ask("slowly die"))
    turn = ended(updates)
    assert (turn.text, turn.state) == ("0 1 2 ", CUT_OFF)
    assert "SIGKILL" in told(updates)[-1]
    assert turn.stats is not None
    assert turn.stats.tokens == 3
    updates = await read(conversation.ask("go on"))
    assert ended(updates).text == "0 1 2 3 4 5 6 7 "
    assert any("restarted" in line for line in told(updates))
    assert conversation.turns[1] == turn


async def test_an_unforeseen_error_of_the_engine_is_said(child: ProcessEngine) -> None:
    conversation = Conversation(child, Store(None), Config(reply=schema.Reply(max_tokens=8)))
    await load(conversation)
    updates = await read(conversation.ask("fail"))
    assert (ended(updates).text, ended(updates).state) == ("0 1 2 ", CUT_OFF)
    assert "unexpected RuntimeError" in told(updates)[-1]
    assert ended(await read(conversation.ask("go on"))).state == COMPLETE
