"""A conversation as a user has it: ask, stop, again, otherwise, go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted import PAIR, Script, ScriptedEngine, said
from textual import events

from macspec.app.actions import BUSY
from macspec.app.prompt.prompt import Prompt
from macspec.worker import Failed

BLUE = "Blue like the sky of a clear day in June."
LONG = " ".join(f"word{number}" for number in range(60))


async def test_a_question_and_its_answer(running: Callable[..., Any]) -> None:
    async with running(BLUE) as it:
        assert it.app.main.has_class("-empty")
        await it.pilot.press(*"Hello", "enter")
        await it.until(lambda: it.engine.playing)
        it.engine.play()
        await it.until(lambda: "Blue" in it.screen)
        assert it.app.conversation.busy
        it.engine.play_all()
        await it.until(lambda: not it.app.conversation.busy)
        await it.pilot.pause()
        assert [turn.text for turn in it.app.conversation.turns] == ["Hello", BLUE]
        assert "in June." in it.screen
        assert it.app.main.prompt.value == ""


async def test_esc_stops_and_keeps_what_came(running: Callable[..., Any]) -> None:
    async with running(LONG) as it:
        await it.send("Count")
        await it.until(lambda: it.engine.playing)
        it.engine.play(3)
        await it.pilot.press("escape")
        await it.until(lambda: not it.app.conversation.busy)
        reply = it.app.conversation.turns[-1]
        assert reply.state == "stopped"
        assert LONG.startswith(reply.text)
        assert reply.text


async def test_regenerate_makes_another_version(running: Callable[..., Any]) -> None:
    async with running("First.", "Second.") as it:
        await it.ask("Say something")
        await it.pilot.press("ctrl+r")
        await it.until(lambda: it.engine.playing)
        it.engine.play_all()
        await it.until(lambda: not it.app.conversation.busy)
        reply = it.app.conversation.turns[-1]
        assert (reply.text, reply.sibling, reply.siblings) == ("Second.", 2, 2)
        await it.pilot.press("tab", "left")
        await it.until(lambda: it.app.conversation.turns[-1].text == "First.")
        await it.pilot.pause()
        assert "First." in it.screen
        assert "Second." not in it.screen
        assert it.status == "version 1 of 2"
        await it.pilot.press("left")
        await it.until(lambda: it.status == "this is the first of 2 versions")


async def test_edit_and_resend(running: Callable[..., Any]) -> None:
    async with running("One.", "Two.", "Three.") as it:
        await it.ask("the first question")
        await it.ask("the second question")
        await it.pilot.press("tab", "up", "up", "up", "up", "e")
        await it.until(lambda: it.app.main.prompt.editing)
        assert it.app.main.prompt.value == "the first question"
        await it.pilot.press("!", "enter")
        await it.until(lambda: it.engine.playing)
        it.engine.play_all()
        await it.until(lambda: not it.app.conversation.busy)
        await it.pilot.pause()
        assert [turn.text for turn in it.app.conversation.turns] == [
            "the first question!",
            "Three.",
        ]
        assert "second question" not in it.screen


async def test_a_stopped_reply_goes_on(running: Callable[..., Any]) -> None:
    async with running(LONG, " and more.") as it:
        await it.send("Count")
        await it.until(lambda: it.engine.playing)
        it.engine.play(3)
        await it.pilot.press("escape")
        await it.until(lambda: not it.app.conversation.busy)
        begun = it.app.conversation.turns[-1].text
        await it.ask("/continue")
        assert it.app.conversation.turns[-1].text == f"{begun} and more."


async def test_what_makes_no_sense_now_is_said(running: Callable[..., Any]) -> None:
    async with running(LONG) as it:
        await it.pilot.press("ctrl+r")
        assert it.status == "this conversation is empty"
        await it.send("Count")
        await it.until(lambda: it.engine.playing)
        await it.pilot.press("ctrl+n")
        assert it.status == BUSY


async def test_messages_during_a_reply_wait_for_its_end(running: Callable[..., Any]) -> None:
    async with running("One.", "Two.", "Three.") as it:
        await it.send("Count")
        await it.until(lambda: it.engine.playing)
        await it.send("and then?")
        await it.send("the lst?")
        await it.until(lambda: "queued  the lst?" in it.screen)
        assert it.app.main.prompt.value == ""
        await it.pilot.press("up")
        assert it.app.main.prompt.value == "the lst?"
        assert "queued  the lst?" not in it.screen
        it.app.main.prompt.load("the last?")
        await it.pilot.press("enter")
        for count in (2, 3):
            it.engine.play_all()
            await it.until(lambda count=count: len(it.engine.requests) == count)
        it.engine.play_all()
        await it.until(lambda: not it.app.conversation.busy)
        asked = [turn.text for turn in it.app.conversation.turns if turn.role == "user"]
        assert asked == ["Count", "and then?", "the last?"]
        assert not it.app.main.prompt.queue


async def test_esc_gives_the_queue_back(running: Callable[..., Any]) -> None:
    async with running(LONG) as it:
        await it.send("Count")
        await it.until(lambda: it.engine.playing)
        it.engine.play(3)
        await it.send("and then?")
        await it.pilot.press(*"typed")
        assert it.app.main.prompt.unsent == "and then?\n\ntyped"
        await it.pilot.press("escape")
        await it.until(lambda: it.app.main.prompt.value == "and then?\n\ntyped")
        assert len(it.engine.requests) == 1


async def test_a_message_that_is_too_long_is_not_sent(running: Callable[..., Any]) -> None:
    engine = ScriptedEngine("Yes.", pair=replace(PAIR, context=40))
    async with running(engine=engine) as it:
        await it.pilot.press(*"one two")
        await it.until(lambda: "2 of 38 tokens" in it.screen)
        long = "word " * 50
        it.app.main.prompt.load(long)
        await it.until(lambda: "52 of 40 tokens: too long" in it.screen)
        await it.pilot.press("enter")
        await it.until(lambda: it.status.startswith("not sent: 52 of 40 tokens"))
        assert it.app.main.prompt.value == long
        assert it.engine.requests == []
        await it.ask("hi")
        assert it.app.conversation.turns[-1].text == "Yes."


async def test_what_the_engine_refuses_comes_back(running: Callable[..., Any]) -> None:
    refusal = Script([], failure=Failed("refused", "the prompt has 60 tokens"))
    async with running(refusal, "Yes.") as it:
        await it.ask("long")
        await it.until(lambda: it.status == "not sent: the prompt has 60 tokens")
        assert it.app.main.prompt.value == "long"
        assert it.app.conversation.turns == ()
        assert it.app.main.has_class("-empty")
        await it.ask("short")
        assert it.engine.requests[-1].messages == ({"role": "user", "content": "short"},)


async def test_a_lost_engine_costs_nothing_that_was_said(running: Callable[..., Any]) -> None:
    async with running(LONG, "Back again.") as it:
        await it.send("Count")
        await it.until(lambda: it.engine.playing)
        it.engine.play(4)
        it.engine.crash()
        await it.until(lambda: not it.app.conversation.busy)
        await it.pilot.pause()
        reply = it.app.conversation.turns[-1]
        assert reply.state == "cut off"
        assert reply.text
        assert "the engine stopped" in it.screen
        await it.ask("Are you there?")
        assert it.app.conversation.turns[-1].text == "Back again."


async def test_a_mistyped_command_stays_in_the_prompt(running: Callable[..., Any]) -> None:
    async with running() as it:
        await it.send("/dept 4")
        assert it.app.main.prompt.value == "/dept 4"
        assert "did you mean /depth?" in it.status


async def test_a_pair_that_cannot_be_loaded_is_told(running: Callable[..., Any]) -> None:
    engine = ScriptedEngine(loads=False)
    async with running(engine=engine) as it:
        engine.finish_load(Failed("refused", "there is no such folder"))
        await it.until(lambda: "there is no such folder" in it.status)


async def test_keys_act_on_the_turn_that_is_chosen(running: Callable[..., Any]) -> None:
    async with running("One.", "Two.", "Three.", "Four.") as it:
        await it.ask("the first question")
        await it.ask("the second question")
        await it.pilot.press("tab", "up", "up", "up", "e")  # the first reply
        await it.until(lambda: it.app.main.prompt.editing)
        assert it.app.main.prompt.value == "the first question"
        await it.pilot.press("escape", "tab", "up", "up", "up", "up", "r")  # the first prompt
        await it.until(lambda: len(it.engine.requests) == 3)
        it.engine.play_all()
        await it.until(lambda: not it.app.conversation.busy)
        assert [turn.text for turn in it.app.conversation.turns] == ["the first question", "Three."]


async def test_enter_takes_the_highlighted_completion(
    running: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.md").write_text("milk")
    async with running("Yes.") as it:
        await it.pilot.press(*"/them", "enter")
        await it.until(lambda: it.app.theme == "macspec-light")
        await it.pilot.press(*"/theme ")
        await it.until(lambda: it.app.main.prompt.popup.open)
        await it.pilot.press("enter")
        await it.until(lambda: it.app.theme == "macspec-dark")
        await it.pilot.press(*"@no", "enter")
        assert it.app.main.prompt.value == "@notes.md "
        it.app.main.prompt.load("")
        await it.pilot.press("slash", "enter")
        assert "write a command after the slash" in it.status
        it.app.main.prompt.load("")
        await it.send("/undo2")
        assert "did you mean /undo?" in it.status
        assert it.engine.requests == []


async def test_a_command_typed_in_one_burst_goes_to_the_prompt(running: Callable[..., Any]) -> None:
    async with running("One.") as it:
        await it.ask("hello")
        chat = it.app.conversation.chat.id
        await it.pilot.press("tab")
        for character in "/foo":
            key = "slash" if character == "/" else character
            it.app.post_message(events.Key(key, character))
        await it.until(lambda: it.app.main.prompt.value == "/foo")
        assert it.app.conversation.chat.id == chat


async def test_completions_of_commands(running: Callable[..., Any]) -> None:
    async with running() as it:
        await it.pilot.press(*"/met")
        await it.until(lambda: "/method" in it.screen)
        await it.pilot.press("tab", *"ngr")
        await it.until(lambda: "text repeated in this" in it.screen)
        await it.pilot.press("tab", "enter")
        await it.until(lambda: it.engine.tuning.method == "ngram")
        assert it.status == "method ngram from the next round"


async def test_a_script_may_reason_first(running: Callable[..., Any]) -> None:
    steps = [*said("Hm, let me see.", part="reasoning"), *said("Four.")]
    async with running(Script(steps)) as it:
        await it.ask("2 + 2?")
        assert it.app.conversation.turns[-1].reasoning == "Hm, let me see."
        assert "let me see" not in it.screen
        await it.send("/reasoning")
        await it.until(lambda: "let me see" in it.screen)


async def test_focus_goes_round_with_tab(running: Callable[..., Any]) -> None:
    async with running("Yes.") as it:
        await it.ask("Hello")
        await it.pilot.press("tab")
        assert it.app.focused is it.app.main.transcript
        await it.pilot.press("escape")
        assert isinstance(it.app.focused.parent.parent, Prompt)
