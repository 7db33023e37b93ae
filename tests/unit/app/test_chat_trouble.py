"""A conversation when something is in the way: crashes, refusals, other windows, signals, loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conversing import (
    LONG,
    asked,
    conversation_with,
    ended,
    eventually,
    load,
    read,
    reading,
    told,
)
from scripted import STATUS, Script, ScriptedEngine, said

from macspec.app.chat.turns import Began, Withdrawn
from macspec.errors import BadOptionError
from macspec.store import CUT_OFF, STOPPED, Store
from macspec.worker import Failed, PairChoice


async def test_a_crash_keeps_the_text_and_the_next_question_works() -> None:
    engine = ScriptedEngine(Script(said("The quick fox sleeps.", pattern=(1,))), "Fine.")
    conversation = conversation_with(engine)
    await load(conversation)
    async with reading(conversation.ask("Go.")) as reply:
        engine.play()
        await reply.text("The quick")
        engine.crash()
        updates = await reply.all()
    turn = ended(updates)
    assert (turn.text, turn.state) == ("The quick", CUT_OFF)
    assert "killed by SIGKILL" in told(updates)[-1]
    async with reading(conversation.ask("How are you?")) as reply:
        engine.play_all()
        assert ended(await reply.all()).text == "Fine."
    assert asked(engine)[1] == ("assistant", "The quick")


async def test_an_engine_that_was_lost_before_is_asked_once_more() -> None:
    engine = ScriptedEngine("One.", "Two.")
    conversation = conversation_with(engine)
    async with reading(conversation.ask("Go.")) as reply:
        engine.crash()
        await eventually(lambda: len(engine.requests) == 2)
        engine.play_all()
        updates = await reply.all()
    assert (ended(updates).text, told(updates)) == ("Two.", [])
    async with reading(conversation.ask("Again.")) as reply:
        engine.crash()
        await eventually(lambda: len(engine.requests) == 4)
        engine.crash()
        updates = await reply.all()
    assert ended(updates).state == CUT_OFF
    assert len(told(updates)) == 1


async def test_what_is_refused_is_said_and_not_kept() -> None:
    refusal = Failed("refused", "no model is loaded: choose one first")
    engine = ScriptedEngine(Script([], failure=refusal), "Yes.", instant=True)
    conversation = conversation_with(engine)
    updates = await read(conversation.ask("Anybody?"))
    assert updates[-1] == Withdrawn("no model is loaded: choose one first")
    assert conversation.turns == ()
    assert conversation.store.chats() == []
    assert ended(await read(conversation.ask("Yes?"))).text == "Yes."
    assert asked(engine) == [("user", "Yes?")]


async def test_a_refused_version_leaves_the_one_before() -> None:
    refusal = Script([], failure=Failed("refused", "too long"))
    engine = ScriptedEngine("One.", "Two.", refusal, refusal, "Three.", instant=True)
    conversation = conversation_with(engine)
    await read(conversation.ask("First?"))
    await read(conversation.ask("Second?"))
    before = conversation.turns
    for updates in (conversation.edit(before[0].id, "Longer?"), conversation.regenerate()):
        assert isinstance((await read(updates))[-1], Withdrawn)
        assert conversation.turns == before
    assert ended(await read(conversation.ask("Third?"))).text == "Three."


async def test_while_a_reply_streams_there_is_no_other() -> None:
    engine = ScriptedEngine(LONG)
    conversation = conversation_with(engine)
    async with reading(conversation.ask("Go.")) as reply:
        for other in (
            lambda: conversation.ask("x"),
            conversation.regenerate,
            conversation.new,
            lambda: conversation.open(1),
            conversation.compare,
        ):
            with pytest.raises(BadOptionError, match="a reply is being generated"):
                other()
        engine.play_all()
        await reply.all()


async def test_what_another_window_deletes_comes_back_with_the_next_message(tmp_path: Path) -> None:
    engine = ScriptedEngine("One.", "Two.", "Three.", instant=True)
    here, there = Store(tmp_path / "chats.db"), Store(tmp_path / "chats.db")
    conversation = conversation_with(engine, here)
    await read(conversation.ask("First?"))
    assert conversation.refresh() == ""
    for delete in (there.delete, there.purge):
        assert conversation.chat is not None
        delete(conversation.chat.id)
        assert "deleted" in (news := conversation.refresh()) or "removed for good" in news
        assert conversation.refresh() == ""
        assert conversation.turns
        updates = await read(conversation.ask("Again?"))
        assert "it is restored" in told(updates)[0]
        (chat,) = there.chats()
        assert [turn.text for turn in there.thread(chat.id)][:2] == ["First?", "One."]
        assert ended(updates).text == there.thread(chat.id)[-1].text


async def test_a_reply_outlives_its_conversation(tmp_path: Path) -> None:
    engine = ScriptedEngine(Script(said("a b c d", pattern=(1,))))
    here, there = Store(tmp_path / "chats.db"), Store(tmp_path / "chats.db")
    conversation = conversation_with(engine, here)
    for delete in (there.delete, there.purge):
        async with reading(conversation.ask("Go.")) as reply:
            engine.play()
            await reply.text("a b")
            assert conversation.chat is not None
            delete(conversation.chat.id)
            engine.play_all()
            updates = await reply.all()
        assert ended(updates).text == "a b c d"
        (chat,) = there.chats()
        assert [turn.text for turn in there.thread(chat.id)] == ["Go.", "a b c d"]
        conversation.new()
        there.purge(chat.id)


async def test_what_another_window_says_is_shown(tmp_path: Path) -> None:
    engine = ScriptedEngine("One.", "Two.", "Three.", instant=True)
    path = tmp_path / "chats.db"
    first, second = (conversation_with(engine, Store(path)) for _ in range(2))
    await read(first.ask("First?"))
    assert first.chat is not None
    second.open(first.chat.id)
    await read(second.ask("Second?"))
    assert "changed in another window" in first.refresh()
    assert [turn.text for turn in first.turns] == ["First?", "One.", "Second?", "Two."]
    assert first.refresh() == ""
    first.rename("Mine")
    assert second.refresh() == ""
    assert second.chat is not None
    assert second.chat.title == "Mine"


async def test_a_signal_keeps_the_reply_at_once(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    engine = ScriptedEngine(Script(said(LONG, pattern=(1,))))
    conversation = conversation_with(engine, Store(path))
    async with reading(conversation.ask("Go.")) as reply:
        engine.play(2)
        await reply.text("The quick brown fox")
        conversation.saved_interrupt()
        other = Store(path)
        kept = other.thread(1)[-1]
        assert (kept.text, kept.state) == ("The quick brown fox", CUT_OFF)
        assert kept.metadata is not None
        assert kept.metadata.spans is not None
        other.close()
        engine.play()
        assert ended(await reply.all()).state == CUT_OFF
    await conversation.close()


async def test_a_reader_that_goes_away_stops_the_reply() -> None:
    engine = ScriptedEngine(Script(said(LONG, pattern=(1,))))
    conversation = conversation_with(engine)
    async with reading(conversation.ask("Go.")) as reply:
        engine.play()
        await reply.text("The quick")
    await read_cancelled(reply.task)
    assert not conversation.busy
    assert not engine.playing
    assert (conversation.turns[-1].text, conversation.turns[-1].state) == ("The quick", STOPPED)


async def read_cancelled(task: Any) -> None:
    try:
        await task
    except BaseException:
        return


async def test_a_store_that_fails_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    path.write_bytes(b"no database at all" * 100)
    engine = ScriptedEngine("Yes.", instant=True)
    conversation = conversation_with(engine, Store(path))
    first, second = await read(conversation.ask("One?")), await read(conversation.ask("Two?"))
    assert [line for line in told(first) if "not being saved" in line]
    assert told(second) == []
    assert len(conversation.turns) == 4


async def test_a_load_is_followed_and_can_be_given_up() -> None:
    engine = ScriptedEngine(loads=False)
    conversation = conversation_with(engine)
    assert conversation.panel().activity == "no model"
    loading = conversation.setup.load(PairChoice("owner/model"))
    await anext(loading)
    engine.load_progress("downloading", 25, 100, "owner/model")
    await anext(loading)
    state = conversation.panel()
    assert (state.activity, state.progress) == ("loading", 0.25)
    conversation.setup.cancel()
    (last,) = [update async for update in loading]
    assert isinstance(last, Failed)
    assert conversation.panel().activity == "no model"
    assert conversation.setup.choice is None
    loading = conversation.setup.load(PairChoice("owner/model"))
    await anext(loading)
    engine.finish_load()
    await read(loading)
    assert conversation.setup.choice == PairChoice("owner/model")
    state = conversation.panel()
    assert (state.activity, state.target) == ("ready", engine._pair.target)
    assert (state.kernels, state.memory_used) == (STATUS.kernels, STATUS.memory)


async def test_a_question_during_a_load_is_answered_by_the_new_pair() -> None:
    engine = ScriptedEngine("Yes.", loads=False)
    conversation = conversation_with(engine)
    loading = conversation.setup.load(PairChoice("owner/model", "owner/draft"))
    await anext(loading)
    async with reading(conversation.ask("Anybody?")) as reply:
        began = reply.updates[0]
        assert isinstance(began, Began)
        assert (began.reply.model, began.reply.draft) == ("owner/model", "owner/draft")
        engine.finish_load()
        await read(loading)
        assert conversation.panel().activity == "waiting"
        engine.play_all()
        turn = ended(await reply.all())
    assert (turn.model, turn.draft) == ("owner/model", "owner/draft")
    loading = conversation.setup.load(PairChoice("owner/broken"))
    await anext(loading)
    async with reading(conversation.ask("And now?")) as reply:
        engine.finish_load(Failed("refused", "it is broken: get another one"))
        await read(loading)
        engine.play_all()
        turn = ended(await reply.all())
    assert turn.model == "owner/model"  # the one before goes on
