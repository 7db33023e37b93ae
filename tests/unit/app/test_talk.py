"""A conversation: what is said, shown and kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted import PAIR, STATUS, Script, ScriptedEngine, Step, plain, said
from talking import ended, eventually, load, read, reading, talk_with, text, told

from macspec.app.chat.talk import Began, Dropped, Talk
from macspec.app.chat.turns import Piece
from macspec.config import schema
from macspec.errors import BadOptionError
from macspec.store import COMPLETE, CUT_OFF, OPEN, RAW, STOPPED, USER, Store
from macspec.worker import Failed, PairChoice

LONG = "The quick brown fox jumps over the lazy dog, and then it sleeps in the sun."


def roles(talk: Talk) -> list[tuple[str, str]]:
    return [(turn.role, turn.text) for turn in talk.turns]


def asked(engine: ScriptedEngine, number: int = -1) -> list[tuple[str, str]]:
    """What the engine was asked."""
    messages: Any = engine.requests[number].messages
    return [(message["role"], message["content"]) for message in messages]


async def test_a_question_and_its_answer() -> None:
    engine = ScriptedEngine(Script(said(LONG, pattern=(2, 0))), instant=True)
    talk = talk_with(engine)
    assert (talk.chat, talk.turns, talk.first_run) == (None, (), True)
    await load(talk)
    updates = await read(talk.ask("What?\nPlease."))
    began, reply = updates[0], ended(updates)
    assert isinstance(began, Began)
    assert began.prompt is not None
    assert (began.prompt.text, began.reply.text, began.reply.state) == ("What?\nPlease.", "", OPEN)
    assert text(updates) == reply.text == LONG
    pieces = [update for update in updates if isinstance(update, Piece)]
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
    assert talk.chat is not None
    assert talk.chat.title == "What?"
    assert talk.turns == (began.prompt, reply)
    assert not talk.busy


async def test_it_is_kept_as_it_was_made() -> None:
    engine, store = ScriptedEngine("Yes it is.", instant=True), Store(None)
    talk = talk_with(engine, store)
    await load(talk, PairChoice("owner/target", None))
    await talk.tune(method="ngram", depth=6, rule="keyed", sampling={"temperature": 0.25})
    await read(talk.ask("Is it?"))
    assert talk.chat is not None
    message = store.thread(talk.chat.id)[-1]
    assert (message.text, message.state) == ("Yes it is.", COMPLETE)
    making = message.making
    assert making is not None
    assert (making.model, making.draft) == ("owner/target", None)
    assert (making.method, making.depth, making.rule, making.seed) == ("ngram", 6, "keyed", 7)
    assert making.sampling["temperature"] == 0.25
    assert making.sampling["top_p"] == 1.0
    assert making.spans == [(9, "draft"), (1, None)] or making.spans == [(10, "draft")]
    assert making.stats is not None
    assert making.stats["tokens"] == 3
    assert store.chat(talk.chat.id).sampling == {"temperature": 0.25}


async def test_the_engine_gets_the_conversation() -> None:
    engine = ScriptedEngine("One.", "Two.", instant=True)
    talk = talk_with(engine, reply=schema.Reply(system="Be brief.", think="off", max_tokens=9))
    await read(talk.ask("First?"))
    await read(talk.ask("Second?"))
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
    talk.set_think(None)
    talk.set_system("")
    await read(talk.ask("Third?"))
    assert asked(engine)[0] == ("user", "First?")
    assert engine.requests[-1].think is None


async def test_text_comes_as_it_is_written_and_is_on_the_disk_soon(tmp_path: Path) -> None:
    engine = ScriptedEngine(Script(said("a b c d e f", pattern=(1,))))
    store = Store(tmp_path / "chats.db")
    talk = talk_with(engine, store)
    async with reading(talk.ask("Go.")) as reply:
        assert talk.busy
        assert talk.panel().activity == "waiting"
        engine.play()
        await reply.text("a b")
        engine.play()
        await reply.text("a b c d")
        assert talk.panel().activity == "writing"
        assert talk._streaming is not None
        talk._streaming.reply.save()
        assert talk.chat is not None
        kept = store.thread(talk.chat.id)[-1]
        assert (kept.text, kept.state) == ("a b c d", OPEN)
        engine.play()
        assert ended(await reply.all()).text == "a b c d e f"
    await talk.close()


async def test_what_came_stays_when_it_is_stopped_and_it_can_go_on() -> None:
    more = Script(said(" jumps high.", drafter="ngram"))
    engine = ScriptedEngine(Script(said("The quick fox sleeps.", pattern=(1,))), more)
    talk = talk_with(engine)
    async with reading(talk.ask("Go.")) as reply:
        engine.play()
        await reply.text("The quick")
        talk.stop()
        turn = ended(await reply.all())
    assert (turn.text, turn.state, turn.reason) == ("The quick", STOPPED, "interrupted")
    async with reading(talk.resume(turn.id)) as reply:
        began = reply.updates[0]
        assert isinstance(began, Began)
        assert (began.prompt, began.reply.text, began.reply.id) == (None, "The quick", turn.id)
        engine.play_all()
        turn = ended(await reply.all())
    assert (turn.text, turn.state) == ("The quick jumps high.", COMPLETE)
    assert turn.spans == [(3, "draft"), (6, None), (12, "ngram")]
    assert engine.requests[-1].resume
    assert asked(engine) == [("user", "Go."), ("assistant", "The quick")]
    assert len(talk.turns) == 2
    assert turn.stats is not None
    assert (turn.stats.tokens, turn.stats.parts, turn.stats.whole) == (4, 2, True)


async def test_stopping_before_anything_came_leaves_an_empty_reply_to_begin_anew() -> None:
    engine = ScriptedEngine("Here.", "There.")
    talk = talk_with(engine)
    async with reading(talk.ask("Where?")) as reply:
        talk.stop()
        turn = ended(await reply.all())
    assert (turn.text, turn.state) == ("", STOPPED)
    async with reading(talk.regenerate()) as reply:
        engine.play_all()
        again = ended(await reply.all())
    assert (again.id, again.text, again.siblings) == (turn.id, "There.", 1)
    assert not engine.requests[-1].resume
    assert asked(engine) == [("user", "Where?")]


async def test_what_follows_an_empty_reply_is_asked_together() -> None:
    engine = ScriptedEngine("Here.")
    talk = talk_with(engine)
    async with reading(talk.ask("Where?")) as reply:
        talk.stop()
        await reply.all()
    async with reading(talk.ask("I mean it.")) as reply:
        engine.play_all()
        await reply.all()
    assert asked(engine) == [("user", "Where?\n\nI mean it.")]
    assert [turn.text for turn in talk.turns] == ["Where?", "", "I mean it.", "Here."]


async def test_versions_of_a_reply_and_of_a_question() -> None:
    engine = ScriptedEngine("One.", "Two.", "After.", "Other.", instant=True)
    talk = talk_with(engine)
    await read(talk.ask("Number?"))
    second = ended(await read(talk.regenerate()))
    assert (second.text, second.sibling, second.siblings) == ("Two.", 2, 2)
    await read(talk.ask("And?"))
    talk.step(second.id, -1)
    assert roles(talk) == [(USER, "Number?"), ("assistant", "One.")]
    with pytest.raises(BadOptionError, match="no other version"):
        talk.step(talk.turns[-1].id, -1)
    talk.step(talk.turns[-1].id, 1)
    assert [turn.text for turn in talk.turns] == ["Number?", "Two.", "And?", "After."]
    other = await read(talk.edit(talk.turns[0].id, "A letter?"))
    assert isinstance(other[0], Began)
    assert other[0].prompt is not None
    assert (other[0].prompt.sibling, other[0].prompt.siblings) == (2, 2)
    assert [turn.text for turn in talk.turns] == ["A letter?", "Other."]
    talk.step(talk.turns[0].id, -1)
    assert [turn.text for turn in talk.turns] == ["Number?", "Two.", "And?", "After."]
    with pytest.raises(BadOptionError, match="only what you said"):
        talk.edit(talk.turns[1].id, "no")


async def test_a_fork_goes_on_alone() -> None:
    engine = ScriptedEngine("One.", "Two.", instant=True)
    talk = talk_with(engine)
    reply = ended(await read(talk.ask("Number?")))
    await read(talk.ask("And?"))
    first = talk.chat
    fork = talk.fork(reply.id)
    assert first is not None
    assert fork.id != first.id
    assert talk.chat == fork
    assert [turn.text for turn in talk.turns] == ["Number?", "One."]
    talk.open(first.id)
    assert len(talk.turns) == 4


async def test_conversations_are_opened_named_deleted_and_brought_back() -> None:
    engine, store = ScriptedEngine("Yes.", instant=True), Store(None)
    talk = talk_with(engine, store)
    with pytest.raises(BadOptionError, match="nothing was said"):
        talk.rename("x")
    await read(talk.ask("One?"))
    first = talk.chat
    assert first is not None
    talk.new()
    assert (talk.chat, talk.turns) == (None, ())
    await read(talk.ask("Two?"))
    talk.rename("  The \x1b[2Jsecond ")
    assert talk.chat is not None
    assert talk.chat.title == "The ␛[2Jsecond"
    talk.open(first.id)
    assert talk.turns[0].text == "One?"
    talk.delete()
    assert talk.chat is None
    assert [chat.title for chat in store.chats()] == ["The ␛[2Jsecond"]
    assert [chat.id for chat in talk.undo()] == [first.id]
    assert talk_with(engine, store).reopen_last()
    with pytest.raises(BadOptionError, match="no conversation 99"):
        talk.open(99)
    assert talk.sent == ["One?", "Two?"]


async def test_the_prompt_that_is_typed_is_kept() -> None:
    engine, store = ScriptedEngine("Yes.", instant=True), Store(None)
    talk = talk_with(engine, store)
    talk.save_unsent(" ")
    assert talk.chat is None
    talk.save_unsent("half a tho")
    assert talk.chat is not None
    assert talk.unsent == store.chat(talk.chat.id).unsent == "half a tho"
    again = talk_with(engine, store)
    assert not again.first_run
    again.open(talk.chat.id)
    assert again.unsent == "half a tho"
    await read(again.ask("half a thought"))
    assert again.unsent == store.chat(talk.chat.id).unsent == ""
    assert again.chat is not None
    assert again.chat.title == "half a thought"


async def test_a_crash_keeps_the_text_and_the_next_question_works() -> None:
    engine = ScriptedEngine(Script(said("The quick fox sleeps.", pattern=(1,))), "Fine.")
    talk = talk_with(engine)
    await load(talk)
    async with reading(talk.ask("Go.")) as reply:
        engine.play()
        await reply.text("The quick")
        engine.crash()
        updates = await reply.all()
    turn = ended(updates)
    assert (turn.text, turn.state) == ("The quick", CUT_OFF)
    assert "killed by SIGKILL" in told(updates)[-1]
    async with reading(talk.ask("How are you?")) as reply:
        engine.play_all()
        assert ended(await reply.all()).text == "Fine."
    assert asked(engine)[1] == ("assistant", "The quick")


async def test_an_engine_that_was_lost_before_is_asked_once_more() -> None:
    engine = ScriptedEngine("One.", "Two.")
    talk = talk_with(engine)
    async with reading(talk.ask("Go.")) as reply:
        engine.crash()
        await eventually(lambda: len(engine.requests) == 2)
        engine.play_all()
        updates = await reply.all()
    assert (ended(updates).text, told(updates)) == ("Two.", [])
    async with reading(talk.ask("Again.")) as reply:
        engine.crash()
        await eventually(lambda: len(engine.requests) == 4)
        engine.crash()
        updates = await reply.all()
    assert ended(updates).state == CUT_OFF
    assert len(told(updates)) == 1


async def test_what_is_refused_is_said_and_the_question_stays() -> None:
    refusal = Failed("refused", "no model is loaded: choose one first")
    engine = ScriptedEngine(Script([], failure=refusal), "Yes.", instant=True)
    talk = talk_with(engine)
    updates = await read(talk.ask("Anybody?"))
    assert told(updates) == ["no model is loaded: choose one first"]
    assert (ended(updates).state, talk.turns[0].text) == (CUT_OFF, "Anybody?")
    assert ended(await read(talk.regenerate())).text == "Yes."


async def test_reasoning_is_apart() -> None:
    steps = [
        Step(("<think>\n",), part="tag"),
        *said("Let me see.", part="reasoning", pattern=(2,)),
        Step(("</think>\n\n",), part="tag"),
        *plain("It is four."),
    ]
    engine = ScriptedEngine(steps, "More.", instant=True)
    talk = talk_with(engine)
    updates = await read(talk.ask("Two and two?"))
    turn = ended(updates)
    assert (turn.reasoning, turn.text) == ("Let me see.", "It is four.")
    assert text(updates, reasoning=True) == turn.reasoning
    assert text(updates) == turn.text
    assert turn.spans == [(11, None)]
    assert turn.reasoning_spans == [(6, "draft"), (5, None)]
    await read(talk.resume(turn.id))
    messages: Any = engine.requests[-1].messages
    assert messages[-1] == {
        "role": "assistant",
        "content": "It is four.",
        "reasoning": "Let me see.",
    }
    await read(talk.ask("Thanks."))
    assert asked(engine)[1] == ("assistant", "It is four.More.")


async def test_a_model_without_a_switch_for_reasoning_is_named() -> None:
    engine = ScriptedEngine(pair=replace(PAIR, thinks=False))
    talk = talk_with(engine)
    assert talk.set_think("off") is None  # no pair is there yet
    await load(talk)
    assert talk.set_think("off") == (
        "Qwen3-8B-4bit has no switch for reasoning: off is kept for models that have one"
    )
    assert talk.set_think(None) is None
    assert not talk.thinks


async def test_turns_that_the_model_no_longer_sees_are_marked() -> None:
    engine, store = (
        ScriptedEngine("1", "2", Script(said("3"), dropped=2), instant=True),
        Store(None),
    )
    talk = talk_with(engine, store)
    await read(talk.ask("One?"))
    await read(talk.ask("Two?"))
    updates = await read(talk.ask("Three?"))
    dropped = [update for update in updates if isinstance(update, Dropped)]
    assert dropped == [Dropped((1, 2))]
    assert [turn.dropped for turn in talk.turns] == [True, True, False, False, False, False]
    again = talk_with(engine, store)
    assert talk.chat is not None
    again.open(talk.chat.id)
    assert [turn.dropped for turn in again.turns] == [True, True, False, False, False, False]
    # The same once more is no news.
    updates = await read(talk.regenerate())
    assert [update for update in updates if isinstance(update, Dropped)] == []


async def test_each_conversation_has_its_own_sampling_and_system_prompt() -> None:
    engine = ScriptedEngine("Yes.", instant=True)
    talk = talk_with(engine, sampling=schema.Sampling(temperature=0.5, top_k=9))
    await load(talk)
    assert engine.tuning.sampling["temperature"] == 0.5
    talk.set_system("Sing.")
    await talk.set_sampling({"temperature": 0.125})
    await read(talk.ask("One?"))
    first = talk.chat
    assert first is not None
    assert (first.system, first.sampling) == ("Sing.", {"temperature": 0.125})
    assert (engine.tuning.sampling["temperature"], engine.tuning.sampling["top_k"]) == (0.125, 9)
    talk.new()
    assert (talk.system, talk.sampling) == ("", {})
    assert talk.panel().temperature == 0.5
    await read(talk.ask("Two?"))
    assert engine.tuning.sampling["temperature"] == 0.5
    talk.open(first.id)
    assert (talk.system, talk.panel().temperature) == ("Sing.", 0.125)
    await read(talk.ask("Three?"))
    assert engine.tuning.sampling["temperature"] == 0.125
    assert asked(engine)[0] == ("system", "Sing.")


async def test_tuning_takes_effect_in_mid_reply_or_is_refused_with_the_engine_s_line() -> None:
    engine = ScriptedEngine(Script(said(LONG, pattern=(1,), seconds=0.3)))
    talk = talk_with(engine)
    await load(talk)
    async with reading(talk.ask("Go.")) as reply:
        engine.play(4)
        await reply.text("The quick brown fox jumps over the lazy")
        await talk.tune(depth=7)
        assert (engine.tuning.depth, talk.panel().depth_set) == (7, 7)
        with pytest.raises(BadOptionError, match="depth is 99"):
            await talk.tune(depth=99)
        with pytest.raises(BadOptionError, match="no sampling setting heat"):
            await talk.tune(sampling={"heat": 1})
        assert (engine.tuning.depth, talk.panel().depth_set) == (7, 7)
        engine.play_all()
        await reply.all()
    state = talk.panel()
    assert [mark.what for mark in state.marks] == ["depth 7"]
    assert 0 <= state.marks[0].at < len(state.speeds)


async def test_while_a_reply_streams_there_is_no_other() -> None:
    engine = ScriptedEngine(LONG)
    talk = talk_with(engine)
    async with reading(talk.ask("Go.")) as reply:
        for other in (
            lambda: talk.ask("x"),
            talk.regenerate,
            talk.new,
            lambda: talk.open(1),
            talk.compare,
        ):
            with pytest.raises(BadOptionError, match="a reply is being written"):
                other()
        engine.play_all()
        await reply.all()


async def test_a_signal_keeps_the_reply_at_once(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    engine = ScriptedEngine(Script(said(LONG, pattern=(1,))))
    talk = talk_with(engine, Store(path))
    async with reading(talk.ask("Go.")) as reply:
        engine.play(2)
        await reply.text("The quick brown fox")
        talk.saved_interrupt()
        other = Store(path)
        kept = other.thread(1)[-1]
        assert (kept.text, kept.state) == ("The quick brown fox", CUT_OFF)
        assert kept.making is not None
        assert kept.making.spans is not None
        other.close()
        engine.play()
        assert ended(await reply.all()).state == CUT_OFF
    await talk.close()


async def test_a_reader_that_goes_away_stops_the_reply() -> None:
    engine = ScriptedEngine(Script(said(LONG, pattern=(1,))))
    talk = talk_with(engine)
    async with reading(talk.ask("Go.")) as reply:
        engine.play()
        await reply.text("The quick")
    await read_cancelled(reply.task)
    assert not talk.busy
    assert not engine.playing
    assert (talk.turns[-1].text, talk.turns[-1].state) == ("The quick", STOPPED)


async def read_cancelled(task: Any) -> None:
    try:
        await task
    except BaseException:
        return


async def test_a_store_that_fails_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    path.write_bytes(b"no database at all" * 100)
    engine = ScriptedEngine("Yes.", instant=True)
    talk = talk_with(engine, Store(path))
    first, second = await read(talk.ask("One?")), await read(talk.ask("Two?"))
    assert [line for line in told(first) if "not being saved" in line]
    assert told(second) == []
    assert len(talk.turns) == 4


async def test_raw_text_is_shown_and_continued_and_has_no_turns() -> None:
    engine, store = ScriptedEngine(" a time.", instant=True), Store(None)
    chat = store.new_chat()
    prompt = store.add(chat.id, None, "Once upon", RAW)
    reply = store.reply(chat.id, prompt.id)
    reply.append(" a")
    reply.finish("length")
    talk = talk_with(engine, store)
    talk.open(chat.id)
    with pytest.raises(BadOptionError, match="--raw"):
        talk.ask("And?")
    assert ended(await read(talk.resume(reply.id))).text == " a a time."
    assert (engine.requests[-1].messages, engine.requests[-1].raw) == ("Once upon a", True)


async def test_notices_of_the_engine_are_neutral_lines() -> None:
    engine = ScriptedEngine(Script(said("Yes."), notices=["mind \x1b[2J\nthe gap"]), instant=True)
    assert told(await read(talk_with(engine).ask("?"))) == ["mind ␛[2J the gap"]


async def test_a_load_is_followed_and_can_be_given_up() -> None:
    engine = ScriptedEngine(loads=False)
    talk = talk_with(engine)
    assert talk.panel().activity == "no model"
    loading = talk.load(PairChoice("owner/model"))
    await anext(loading)
    engine.load_progress("downloading", 25, 100, "owner/model")
    await anext(loading)
    state = talk.panel()
    assert (state.activity, state.progress) == ("loading", 0.25)
    talk.cancel_load()
    (last,) = [update async for update in loading]
    assert isinstance(last, Failed)
    assert talk.panel().activity == "no model"
    assert talk.choice is None
    loading = talk.load(PairChoice("owner/model"))
    await anext(loading)
    engine.finish_load()
    await read(loading)
    assert talk.choice == PairChoice("owner/model")
    state = talk.panel()
    assert (state.activity, state.target) == ("ready", engine._pair.target)
    assert (state.kernels, state.memory_used) == (STATUS.kernels, STATUS.memory)


async def test_titles_of_conversations_that_began_empty() -> None:
    engine = ScriptedEngine("Yes.", instant=True)
    talk = talk_with(engine)
    for empty in ("", "  \n"):
        with pytest.raises(BadOptionError, match="the prompt is empty"):
            talk.ask(empty)
    assert talk.chat is None
    with pytest.raises(BadOptionError, match="nothing to answer"):
        talk.regenerate()
    with pytest.raises(BadOptionError, match="message 5 is not shown"):
        talk.resume(5)


async def test_a_question_during_a_load_is_answered_by_the_new_pair() -> None:
    engine = ScriptedEngine("Yes.", loads=False)
    talk = talk_with(engine)
    loading = talk.load(PairChoice("owner/model", "owner/draft"))
    await anext(loading)
    async with reading(talk.ask("Anybody?")) as reply:
        began = reply.updates[0]
        assert isinstance(began, Began)
        assert (began.reply.model, began.reply.draft) == ("owner/model", "owner/draft")
        engine.finish_load()
        await read(loading)
        assert talk.panel().activity == "waiting"
        engine.play_all()
        turn = ended(await reply.all())
    assert (turn.model, turn.draft) == ("owner/model", "owner/draft")
    loading = talk.load(PairChoice("owner/broken"))
    await anext(loading)
    async with reading(talk.ask("And now?")) as reply:
        engine.finish_load(Failed("refused", "it is broken: get another one"))
        await read(loading)
        engine.play_all()
        turn = ended(await reply.all())
    assert turn.model == "owner/model"  # the one before goes on
