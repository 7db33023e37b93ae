"""A conversation: what is said, shown and kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conversing import (
    LONG,
    asked,
    conversation_with,
    ended,
    load,
    read,
    reading,
    text,
    told,
)
from scripted import PAIR, Script, ScriptedEngine, Step, plain, said

from macspec.app.chat.conversation import Conversation
from macspec.app.chat.turns import Began, Dropped, TextPiece
from macspec.choices import EFFORTS
from macspec.config import schema
from macspec.errors import BadOptionError
from macspec.store import COMPLETE, OPEN, RAW, STOPPED, USER, Store
from macspec.worker import PairChoice


def roles(conversation: Conversation) -> list[tuple[str, str]]:
    return [(turn.role, turn.text) for turn in conversation.turns]


async def test_a_question_and_its_answer() -> None:
    engine = ScriptedEngine(Script(said(LONG, pattern=(2, 0))), instant=True)
    conversation = conversation_with(engine)
    assert (conversation.chat, conversation.turns, conversation.first_run) == (None, (), True)
    await load(conversation)
    updates = await read(conversation.ask("What?\nPlease."))
    began, reply = updates[0], ended(updates)
    assert isinstance(began, Began)
    assert began.prompt is not None
    assert (began.prompt.text, began.reply.text, began.reply.state) == ("What?\nPlease.", "", OPEN)
    assert text(updates) == reply.text == LONG
    pieces = [update for update in updates if isinstance(update, TextPiece)]
    assert all(sum(size for size, _ in piece.spans) == len(piece.text) for piece in pieces)
    assert reply.spans[0] == (len("The quick"), "draft")
    assert sum(size for size, _ in reply.spans) == len(LONG)
    assert (reply.state, reply.reason, reply.model, reply.draft) == (
        COMPLETE,
        "end",
        "target",
        "draft",
    )
    assert reply.stats is not None
    assert reply.stats.tokens == len(LONG.split())
    assert reply.stats.acceptance == 0.25
    assert conversation.chat is not None
    assert conversation.chat.title == "What?"
    assert conversation.turns == (began.prompt, reply)
    assert not conversation.busy


async def test_it_is_kept_as_it_was_made() -> None:
    engine, store = ScriptedEngine("Yes it is.", instant=True), Store(None)
    conversation = conversation_with(engine, store)
    await load(conversation, PairChoice("owner/target", None))
    await conversation.setup.tune(
        method="ngram", depth=6, rule="keyed", sampling={"temperature": 0.25}
    )
    await read(conversation.ask("Is it?"))
    assert conversation.chat is not None
    message = store.thread(conversation.chat.id)[-1]
    assert (message.text, message.state) == ("Yes it is.", COMPLETE)
    making = message.metadata
    assert making is not None
    assert (making.model, making.draft) == ("owner/target", None)
    assert (making.method, making.depth, making.rule, making.seed) == ("ngram", 6, "keyed", 7)
    assert making.sampling["temperature"] == 0.25
    assert making.sampling["top_p"] == 1.0
    assert making.spans == [(9, "draft"), (1, None)] or making.spans == [(10, "draft")]
    assert making.stats is not None
    assert making.stats["tokens"] == 3
    assert store.chat(conversation.chat.id).sampling == {"temperature": 0.25}


async def test_the_engine_gets_the_conversation() -> None:
    engine = ScriptedEngine("One.", "Two.", instant=True)
    conversation = conversation_with(
        engine, reply=schema.Reply(system="Be brief.", think="off", max_tokens=9)
    )
    await read(conversation.ask("First?"))
    await read(conversation.ask("Second?"))
    assert asked(engine) == [
        ("system", "Be brief."),
        ("user", "First?"),
        ("assistant", "One."),
        ("user", "Second?"),
    ]
    request = engine.requests[-1]
    assert (request.max_tokens, request.think, request.raw, request.resume) == (
        9,
        False,
        False,
        False,
    )
    conversation.set_think(None)
    conversation.tree.set_system("")
    await read(conversation.ask("Third?"))
    assert asked(engine)[0] == ("user", "First?")
    assert engine.requests[-1].think is None


async def test_text_comes_as_it_is_written_and_is_on_the_disk_soon(tmp_path: Path) -> None:
    engine = ScriptedEngine(Script(said("a b c d e f", pattern=(1,))))
    store = Store(tmp_path / "chats.db")
    conversation = conversation_with(engine, store)
    async with reading(conversation.ask("Go.")) as reply:
        assert conversation.busy
        assert conversation.panel().activity == "waiting"
        engine.play()
        await reply.text("a b")
        engine.play()
        await reply.text("a b c d")
        assert conversation.panel().activity == "writing"
        assert conversation._work is not None
        conversation._work.reply.save()
        assert conversation.chat is not None
        kept = store.thread(conversation.chat.id)[-1]
        assert (kept.text, kept.state) == ("a b c d", OPEN)
        engine.play()
        assert ended(await reply.all()).text == "a b c d e f"
    await conversation.close()


async def test_what_came_stays_when_it_is_stopped_and_it_can_go_on() -> None:
    more = Script(said(" jumps high.", drafter="ngram"))
    engine = ScriptedEngine(Script(said("The quick fox sleeps.", pattern=(1,))), more)
    conversation = conversation_with(engine)
    async with reading(conversation.ask("Go.")) as reply:
        engine.play()
        await reply.text("The quick")
        conversation.stop()
        turn = ended(await reply.all())
    assert (turn.text, turn.state, turn.reason) == ("The quick", STOPPED, "interrupted")
    async with reading(conversation.resume(turn.id)) as reply:
        began = reply.updates[0]
        assert isinstance(began, Began)
        assert (began.prompt, began.reply.text, began.reply.id) == (None, "The quick", turn.id)
        engine.play_all()
        turn = ended(await reply.all())
    assert (turn.text, turn.state) == ("The quick jumps high.", COMPLETE)
    assert turn.spans == [(3, "draft"), (6, None), (12, "ngram")]
    assert engine.requests[-1].resume
    assert asked(engine) == [("user", "Go."), ("assistant", "The quick")]
    assert len(conversation.turns) == 2
    assert turn.stats is not None
    assert (turn.stats.tokens, turn.stats.parts, turn.stats.whole) == (4, 2, True)


async def test_stopping_before_anything_came_leaves_an_empty_reply_to_begin_anew() -> None:
    engine = ScriptedEngine("Here.", "There.")
    conversation = conversation_with(engine)
    async with reading(conversation.ask("Where?")) as reply:
        conversation.stop()
        turn = ended(await reply.all())
    assert (turn.text, turn.state) == ("", STOPPED)
    async with reading(conversation.regenerate()) as reply:
        engine.play_all()
        again = ended(await reply.all())
    assert (again.id, again.text, again.siblings) == (turn.id, "There.", 1)
    assert not engine.requests[-1].resume
    assert asked(engine) == [("user", "Where?")]


async def test_what_follows_an_empty_reply_is_asked_together() -> None:
    engine = ScriptedEngine("Here.")
    conversation = conversation_with(engine)
    async with reading(conversation.ask("Where?")) as reply:
        conversation.stop()
        await reply.all()
    async with reading(conversation.ask("I mean it.")) as reply:
        engine.play_all()
        await reply.all()
    assert asked(engine) == [("user", "Where?\n\nI mean it.")]
    assert [turn.text for turn in conversation.turns] == ["Where?", "", "I mean it.", "Here."]


async def test_versions_of_a_reply_and_of_a_question() -> None:
    engine = ScriptedEngine("One.", "Two.", "After.", "Other.", instant=True)
    conversation = conversation_with(engine)
    await read(conversation.ask("Number?"))
    second = ended(await read(conversation.regenerate()))
    assert (second.text, second.sibling, second.siblings) == ("Two.", 2, 2)
    await read(conversation.ask("And?"))
    conversation.step(second.id, -1)
    assert roles(conversation) == [(USER, "Number?"), ("assistant", "One.")]
    with pytest.raises(BadOptionError, match="no other version"):
        conversation.step(conversation.turns[-1].id, -1)
    conversation.step(conversation.turns[-1].id, 1)
    assert [turn.text for turn in conversation.turns] == ["Number?", "Two.", "And?", "After."]
    other = await read(conversation.edit(conversation.turns[0].id, "A letter?"))
    assert isinstance(other[0], Began)
    assert other[0].prompt is not None
    assert (other[0].prompt.sibling, other[0].prompt.siblings) == (2, 2)
    assert [turn.text for turn in conversation.turns] == ["A letter?", "Other."]
    conversation.step(conversation.turns[0].id, -1)
    assert [turn.text for turn in conversation.turns] == ["Number?", "Two.", "And?", "After."]
    with pytest.raises(BadOptionError, match="only your own messages"):
        conversation.edit(conversation.turns[1].id, "no")


async def test_walking_back_shows_what_followed_each_version() -> None:
    engine = ScriptedEngine("One.", "Two.", "After.", "Other.", instant=True)
    conversation = conversation_with(engine)
    first = ended(await read(conversation.ask("Number?")))
    await read(conversation.regenerate(first.id))
    conversation.step(conversation.turns[1].id, -1)
    await read(conversation.ask("And?"))
    path = conversation.turns
    await read(conversation.edit(path[0].id, "A letter?"))
    conversation.step(conversation.turns[0].id, -1)
    assert [turn.id for turn in conversation.turns] == [turn.id for turn in path]


async def test_the_model_names_a_conversation_once() -> None:
    engine = ScriptedEngine("Blue.", "**A Blue Sky**\nand more", "Six.", instant=True)
    conversation = conversation_with(engine)
    await load(conversation)
    await read(conversation.ask("What colour is the sky?"))
    before = conversation.panel()
    assert await conversation.entitle()
    assert conversation.chat is not None
    assert (conversation.chat.title, conversation.chat.titled) == ("A Blue Sky", "model")
    assert len(conversation.turns) == 2
    assert conversation.panel().tokens == before.tokens
    assert (engine.requests[-1].learn, asked(engine)[:2]) == (
        False,
        [("user", "What colour is the sky?"), ("assistant", "Blue.")],
    )
    assert not await conversation.entitle()
    conversation.new()
    await read(conversation.ask("Three and three?"))
    conversation.rename("Mine")
    assert not await conversation.entitle()


@pytest.mark.parametrize("titles", [True, False])
async def test_titles_can_be_left_to_the_first_words(titles: bool) -> None:
    engine = ScriptedEngine("Blue.", "x" * 99, instant=True)
    conversation = conversation_with(engine, history=schema.History(titles=titles))
    await load(conversation)
    await read(conversation.ask("What colour is the sky?"))
    assert not await conversation.entitle()
    assert conversation.chat is not None
    assert conversation.chat.title == "What colour is the sky?"
    assert len(engine.requests) == 1 + titles


async def test_a_fork_goes_on_alone() -> None:
    engine = ScriptedEngine("One.", "Two.", instant=True)
    conversation = conversation_with(engine)
    reply = ended(await read(conversation.ask("Number?")))
    await read(conversation.ask("And?"))
    first = conversation.chat
    fork = conversation.fork(reply.id)
    assert first is not None
    assert fork.id != first.id
    assert conversation.chat == fork
    assert [turn.text for turn in conversation.turns] == ["Number?", "One."]
    conversation.open(first.id)
    assert len(conversation.turns) == 4


async def test_conversations_are_opened_named_deleted_and_brought_back() -> None:
    engine, store = ScriptedEngine("Yes.", instant=True), Store(None)
    conversation = conversation_with(engine, store)
    with pytest.raises(BadOptionError, match="is empty"):
        conversation.rename("x")
    await read(conversation.ask("One?"))
    first = conversation.chat
    assert first is not None
    conversation.new()
    assert (conversation.chat, conversation.turns) == (None, ())
    await read(conversation.ask("Two?"))
    conversation.rename("  The \x1b[2Jsecond ")
    assert conversation.chat is not None
    assert conversation.chat.title == "The ␛[2Jsecond"
    conversation.open(first.id)
    assert conversation.turns[0].text == "One?"
    conversation.delete()
    assert conversation.chat is None
    assert [chat.title for chat in store.chats()] == ["The ␛[2Jsecond"]
    assert [chat.id for chat in conversation.store.undo()] == [first.id]
    with pytest.raises(BadOptionError, match="no conversation 99"):
        conversation.open(99)
    assert conversation.sent == ["One?", "Two?"]


async def test_the_prompt_that_is_typed_is_kept() -> None:
    engine, store = ScriptedEngine("Yes.", instant=True), Store(None)
    conversation = conversation_with(engine, store)
    conversation.save_unsent(" ")
    assert conversation.chat is None
    conversation.save_unsent("half a tho")
    assert conversation.chat is not None
    assert conversation.unsent == store.chat(conversation.chat.id).unsent == "half a tho"
    again = conversation_with(engine, store)
    assert not again.first_run
    again.open(conversation.chat.id)
    assert again.unsent == "half a tho"
    await read(again.ask("half a thought"))
    assert again.unsent == store.chat(conversation.chat.id).unsent == ""
    assert again.chat is not None
    assert again.chat.title == "half a thought"


async def test_reasoning_is_apart() -> None:
    steps = [
        Step(("<think>\n",), part="tag"),
        *said("Let me see.", part="reasoning", pattern=(2,)),
        Step(("</think>\n\n",), part="tag"),
        *plain("It is four."),
    ]
    engine = ScriptedEngine(steps, "More.", instant=True)
    conversation = conversation_with(engine)
    updates = await read(conversation.ask("Two and two?"))
    turn = ended(updates)
    assert (turn.reasoning, turn.text) == ("Let me see.", "It is four.")
    assert text(updates, reasoning=True) == turn.reasoning
    assert text(updates) == turn.text
    assert turn.spans == [(11, None)]
    assert turn.reasoning_spans == [(6, "draft"), (5, None)]
    await read(conversation.resume(turn.id))
    messages: Any = engine.requests[-1].messages
    assert messages[-1] == {
        "role": "assistant",
        "content": "It is four.",
        "reasoning": "Let me see.",
    }
    await read(conversation.ask("Thanks."))
    assert asked(engine)[1] == ("assistant", "It is four.More.")


async def test_a_model_without_a_switch_for_reasoning_is_named() -> None:
    engine = ScriptedEngine(pair=replace(PAIR, thinks=False))
    conversation = conversation_with(engine)
    assert conversation.set_think("off") is None  # no pair is there yet
    await load(conversation)
    assert conversation.set_think("off") == (
        "Qwen3-8B-4bit can't switch reasoning to off; saved for models that can"
    )
    assert conversation.set_think(None) is None
    assert conversation.thinking == ["auto"]
    engine = ScriptedEngine(pair=replace(PAIR, thinks=False, efforts=EFFORTS))
    conversation = conversation_with(engine)
    await load(conversation)
    assert conversation.thinking == ["auto", "low", "medium", "high"]
    assert conversation.set_think("high") is None
    assert "to off" in (conversation.set_think("off") or "")


async def test_turns_that_the_model_no_longer_sees_are_marked() -> None:
    engine, store = (
        ScriptedEngine("1", "2", Script(said("3"), dropped=2), instant=True),
        Store(None),
    )
    conversation = conversation_with(engine, store)
    await read(conversation.ask("One?"))
    await read(conversation.ask("Two?"))
    updates = await read(conversation.ask("Three?"))
    dropped = [update for update in updates if isinstance(update, Dropped)]
    assert dropped == [Dropped((1, 2))]
    assert [turn.dropped for turn in conversation.turns] == [True, True, False, False, False, False]
    again = conversation_with(engine, store)
    assert conversation.chat is not None
    again.open(conversation.chat.id)
    assert [turn.dropped for turn in again.turns] == [True, True, False, False, False, False]
    # The same once more is no news.
    updates = await read(conversation.regenerate())
    assert [update for update in updates if isinstance(update, Dropped)] == []


async def test_each_conversation_has_its_own_sampling_and_system_prompt() -> None:
    engine = ScriptedEngine("Yes.", instant=True)
    conversation = conversation_with(engine, sampling=schema.Sampling(temperature=0.5, top_k=9))
    await load(conversation)
    assert engine.tuning.sampling["temperature"] == 0.5
    conversation.tree.set_system("Sing.")
    await conversation.setup.set_sampling({"temperature": 0.125})
    await read(conversation.ask("One?"))
    first = conversation.chat
    assert first is not None
    assert (first.system, first.sampling) == ("Sing.", {"temperature": 0.125})
    assert (engine.tuning.sampling["temperature"], engine.tuning.sampling["top_k"]) == (0.125, 9)
    conversation.new()
    assert (conversation.tree.system, conversation.tree.sampling) == ("", {})
    assert conversation.panel().temperature == 0.5
    await read(conversation.ask("Two?"))
    assert engine.tuning.sampling["temperature"] == 0.5
    conversation.open(first.id)
    assert (conversation.tree.system, conversation.panel().temperature) == ("Sing.", 0.125)
    await read(conversation.ask("Three?"))
    assert engine.tuning.sampling["temperature"] == 0.125
    assert asked(engine)[0] == ("system", "Sing.")


async def test_tuning_takes_effect_in_mid_reply_or_is_refused_with_the_engine_s_line() -> None:
    engine = ScriptedEngine(Script(said(LONG, pattern=(1,), seconds=0.3)))
    conversation = conversation_with(engine)
    await load(conversation)
    async with reading(conversation.ask("Go.")) as reply:
        engine.play(4)
        await reply.text("The quick brown fox jumps over the lazy")
        await conversation.setup.tune(depth=7)
        assert (engine.tuning.depth, conversation.panel().depth) == (7, 7)
        with pytest.raises(BadOptionError, match="depth is 99"):
            await conversation.setup.tune(depth=99)
        with pytest.raises(BadOptionError, match="no sampling setting heat"):
            await conversation.setup.tune(sampling={"heat": 1})
        assert (engine.tuning.depth, conversation.panel().depth) == (7, 7)
        engine.play_all()
        await reply.all()
    state = conversation.panel()
    assert [mark.what for mark in state.marks] == ["depth 7"]
    assert 0 <= state.marks[0].at < len(state.speeds)


async def test_raw_text_is_shown_and_continued_and_has_no_turns() -> None:
    engine, store = ScriptedEngine(" a time.", instant=True), Store(None)
    chat = store.new_chat()
    prompt = store.add(chat.id, None, "Once upon", RAW)
    reply = store.reply(chat.id, prompt.id)
    reply.append(" a")
    reply.finish("length")
    conversation = conversation_with(engine, store)
    conversation.open(chat.id)
    with pytest.raises(BadOptionError, match="--raw"):
        conversation.ask("And?")
    assert ended(await read(conversation.resume(reply.id))).text == " a a time."
    assert (engine.requests[-1].messages, engine.requests[-1].raw) == ("Once upon a", True)


async def test_notices_of_the_engine_are_neutral_lines() -> None:
    engine = ScriptedEngine(Script(said("Yes."), notices=["mind \x1b[2J\nthe gap"]), instant=True)
    assert told(await read(conversation_with(engine).ask("?"))) == ["mind ␛[2J the gap"]


async def test_titles_of_conversations_that_began_empty() -> None:
    engine = ScriptedEngine("Yes.", instant=True)
    conversation = conversation_with(engine)
    for empty in ("", "  \n"):
        with pytest.raises(BadOptionError, match="the prompt is empty"):
            conversation.ask(empty)
    assert conversation.chat is None
    with pytest.raises(BadOptionError, match="nothing to answer"):
        conversation.regenerate()
    with pytest.raises(BadOptionError, match="message 5 is not shown"):
        conversation.resume(5)
