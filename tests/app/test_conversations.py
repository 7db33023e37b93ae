"""Conversations: new, open, rename, fork, delete, export, and what was typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


async def test_a_new_one_and_back(running: Callable[..., Any]) -> None:
    async with running("Blue.", "Six.") as it:
        await it.ask("What colour is the sky?")
        await it.pilot.press("ctrl+n")
        await it.until(lambda: not it.app.conversation.turns)
        assert it.app.main.has_class("-empty")
        await it.ask("Three and three?")
        assert len(it.app.conversation.turns) == 2
        first = it.store.chats()[-1].id
        await it.send(f"/chats {first}")
        await it.until(lambda: "Blue." in it.screen)
        assert "Six." not in it.screen


async def test_the_list_and_its_search(running: Callable[..., Any]) -> None:
    async with running("Blue.", "Six.") as it:
        await it.ask("What colour is the sky?")
        await it.pilot.press("ctrl+n")
        await it.ask("Three and three?")
        await it.send("/search sky")
        await it.until(lambda: "What colour" in it.screen)
        await it.until(lambda: "Three and three?" not in _box(it.screen))
        await it.pilot.press("enter")
        await it.until(
            lambda: it.app.main.is_active and it.app.conversation.turns[-1].text == "Blue."
        )


async def test_a_search_leads_to_its_match_and_find_to_the_next(
    running: Callable[..., Any],
) -> None:
    long = "\n\n".join(f"line {number}" for number in range(60))
    async with running(f"a heron\n\n{long}", long, long) as it:
        for question in ("Which bird?", "another heron?", "and now?"):
            await it.ask(question)
        await it.pilot.press("ctrl+n")
        await it.send("/search heron")
        await it.until(lambda: "another" in it.screen and "Which" in it.screen)
        await it.pilot.press("enter")
        await it.until(lambda: it.app.main.is_active and it.app.chosen is not None)
        await it.until(lambda: "heron" in it.screen)
        assert not it.app.main.transcript.following
        for number in (1, 2, 1):
            await it.send("/find heron")
            await it.until(lambda: it.status == f"match {number} of 2")  # noqa: B023
            chosen = it.app.chosen
            texts = {turn.id: turn.text for turn in it.app.conversation.turns}
            assert "heron" in texts[chosen]
            await it.until(lambda: "heron" in it.screen)
        await it.send("/find ostrich")
        await it.until(lambda: "no message here has ostrich" in it.status)


def _box(screen: str) -> str:
    return "\n".join(line for line in screen.splitlines() if "│" in line)


async def test_what_is_typed_goes_along_into_a_new_one(running: Callable[..., Any]) -> None:
    async with running("Blue.") as it:
        await it.ask("What colour is the sky?")
        await it.pilot.press(*"something", "ctrl+n")
        await it.until(lambda: not it.app.conversation.turns)
        assert it.app.main.prompt.value == "something"


async def test_what_is_typed_waits_in_its_conversation(running: Callable[..., Any]) -> None:
    async with running("Blue.", "Six.") as it:
        await it.ask("What colour is the sky?")
        first = it.app.conversation.chat.id
        await it.pilot.press("ctrl+n")
        await it.ask("Three and three?")
        await it.pilot.press(*"and four")
        await it.app.commands.open_chat(first)
        assert it.app.main.prompt.value == ""
        second = next(chat.id for chat in it.store.chats() if chat.id != first)
        await it.app.commands.open_chat(second)
        assert it.app.main.prompt.value == "and four"


async def test_rename(running: Callable[..., Any]) -> None:
    async with running("Blue.") as it:
        await it.send("/rename Sky")
        assert "saved with its first message" in it.status
        await it.ask("What colour is the sky?")
        await it.send("/rename A blue sky")
        await it.until(lambda: "A blue sky" in it.screen.splitlines()[0])
        await it.pilot.press("tab", "n")
        await it.until(lambda: "New title" in it.screen)
        await it.pilot.press("!", "enter")
        await it.until(lambda: it.store.chats()[0].title == "A blue sky!")


async def test_fork(running: Callable[..., Any]) -> None:
    async with running("Blue.", "Six.") as it:
        await it.ask("What colour is the sky?")
        await it.ask("Three and three?")
        first = it.app.conversation.chat.id
        await it.pilot.press("tab", "up", "up", "up", "f")
        await it.until(lambda: it.app.conversation.chat.id != first)
        assert [turn.text for turn in it.app.conversation.turns] == [
            "What colour is the sky?",
            "Blue.",
        ]
        assert len(it.store.thread(first)) == 4


async def test_delete_and_undo(running: Callable[..., Any]) -> None:
    async with running("Blue.") as it:
        await it.ask("What colour is the sky?")
        await it.pilot.press("tab", "X")
        await it.until(lambda: not it.app.conversation.turns)
        assert not it.store.chats()
        assert it.status == "deleted What colour is the sky?; u restores it"
        await it.pilot.press("tab", "u")
        await it.until(lambda: it.app.conversation.turns)
        assert "Blue." in it.screen


async def test_export(
    running: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with running("Blue.") as it:
        await it.ask("What colour is the sky?")
        await it.send("/export sky.md")
        await it.until(lambda: "sky.md" in it.status)
        assert "Blue." in (tmp_path / "sky.md").read_text()
        await it.send("/export sky.md")
        await it.until(lambda: "do the same again to replace it" in it.status)
        await it.send("/export sky.json")
        await it.until(lambda: "sky.json" in it.status)
        json.loads((tmp_path / "sky.json").read_text())


async def test_the_system_prompt(running: Callable[..., Any]) -> None:
    async with running("Blue.") as it:
        await it.send("/system Answer in one word.")
        await it.ask("What colour is the sky?")
        (request,) = it.engine.requests
        assert request.messages[0] == {"role": "system", "content": "Answer in one word."}
        await it.send("/system")
        await it.until(lambda: "Answer in one word." in it.screen)
        await it.pilot.press("escape")
        await it.until(lambda: it.app.main.is_active)


async def test_an_edit_that_is_under_way_ends_with_its_conversation(
    running: Callable[..., Any],
) -> None:
    async with running("Blue.") as it:
        await it.ask("What colour is the sky?")
        await it.send("/edit")
        await it.until(lambda: it.app.main.prompt.editing)
        await it.pilot.press("ctrl+n")
        await it.until(lambda: not it.app.conversation.turns)
        assert not it.app.main.prompt.editing
