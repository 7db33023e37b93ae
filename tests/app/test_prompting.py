"""The prompt within the app: files, pastes, copies, and what must not be lost."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual import events

LONG = "\n".join(f"line {number} of @notes.md" for number in range(42))


@pytest.fixture(autouse=True)
def no_clipboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing leaves the test, and files are those of a folder of its own."""
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("WAYLAND_DISPLAY", "DISPLAY", "SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


async def test_a_file_and_a_paste_go_to_the_model_whole(
    running: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "notes.md").write_text("remember the milk\n")
    async with running("Yes.") as it:
        await it.pilot.press(*"see @no")
        await it.until(lambda: "notes.md" in it.screen)
        await it.pilot.press("tab")
        it.app.main.prompt.area.post_message(events.Paste(LONG))
        await it.until(lambda: "[pasted 42 lines #1]" in it.screen)
        await it.pilot.press("enter")
        await it.until(lambda: it.engine.playing)
        it.engine.play_all()
        await it.until(lambda: not it.app.conversation.busy)
        asked = it.app.conversation.turns[0].text
        block = "`notes.md`:\n```md\nremember the milk\n```"
        assert asked == f"see `notes.md` {LONG}\n\n{block}"
        assert it.engine.requests[-1].messages[-1]["content"] == asked
        await it.pilot.press("up")
        assert it.app.main.prompt.area.text == "see @notes.md [pasted 42 lines #1]"


async def test_a_file_that_cannot_go_gives_the_message_back(
    running: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "picture").write_bytes(b"\xff\xd8")
    async with running() as it:
        await it.send("what is on @picture ?")
        await it.until(lambda: "not UTF-8 text" in it.status)
        assert it.app.main.prompt.value == "what is on @picture ?"
        assert it.engine.requests == []


async def test_a_name_that_is_no_file_is_sent_and_said(running: Callable[..., Any]) -> None:
    async with running("Yes.") as it:
        await it.ask("install @angular/core")
        assert it.app.conversation.turns[0].text == "install @angular/core"
        assert "there is no file angular/core" in it.status


async def test_a_paste_goes_into_the_prompt_from_anywhere(running: Callable[..., Any]) -> None:
    async with running("One.") as it:
        await it.ask("hello")
        await it.pilot.press("tab")
        assert not it.app.main.prompt.area.has_focus
        it.app.post_message(events.Paste("pasted"))
        await it.until(lambda: it.app.main.prompt.value == "pasted")
        await it.until(lambda: it.app.main.prompt.area.has_focus)


async def test_ctrl_c_copies_a_selection_once(running: Callable[..., Any]) -> None:
    async with running() as it:
        area = it.app.main.prompt.area
        area.paste(LONG)
        area.select_all()
        await it.pilot.press("ctrl+c")
        await it.until(lambda: "/copy FILE" in it.status)
        assert it.app.clipboard == LONG
        assert area.selection.is_empty
        await it.pilot.press("ctrl+c")
        await it.until(lambda: "press Ctrl+C again to quit" in it.status)


async def test_what_textual_copies_goes_the_same_way(running: Callable[..., Any]) -> None:
    async with running() as it:
        it.app.copy_to_clipboard("text")
        await it.until(lambda: "/copy FILE" in it.status)
        assert it.app.clipboard == "text"


async def test_a_reply_goes_to_a_file_and_never_over_one(
    running: Callable[..., Any], tmp_path: Path
) -> None:
    async with running("A reply.") as it:
        await it.ask("hello")
        await it.send("/copy out.md")
        await it.until(lambda: "out.md" in it.status)
        assert (tmp_path / "out.md").read_text() == "A reply.\n"
        await it.send("/copy out.md")
        await it.until(lambda: "choose another name" in it.status)


async def test_editing_and_leaving_it_keeps_both_texts(running: Callable[..., Any]) -> None:
    async with running("One.") as it:
        await it.ask("hello")
        await it.pilot.press(*"unsent", "tab", "e")
        await it.until(lambda: it.app.main.prompt.editing)
        await it.pilot.press(*" there")
        it.app.leaving.save()
        assert it.store.chat(it.app.conversation.chat.id).unsent == "unsent\n\nhello there"
        await it.pilot.press("escape")
        assert it.app.main.prompt.value == "unsent"
        await it.pilot.press("up")
        assert it.app.main.prompt.value == "hello there"
