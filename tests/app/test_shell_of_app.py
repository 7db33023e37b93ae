"""What is around the conversation: help, commands, keys, choices, room, leaving."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted import ScriptedEngine

from macspec.app.actions import ACTIONS
from macspec.app.chat.introduction import WHAT
from macspec.app.panel.panelrows import HELP
from macspec.app.panel.sliders import Sliders
from macspec.app.prompt.prompt import Prompt
from macspec.app.screens.help import page
from macspec.config.effective import load

LONG = " ".join(f"word{number}" for number in range(60))


async def test_a_question_mark_in_an_empty_prompt_is_the_help(running: Callable[..., Any]) -> None:
    async with running() as it:
        await it.pilot.press("question_mark")
        await it.until(lambda: "While you write" in it.screen)
        await it.pilot.press("escape")
        await it.until(lambda: it.app.main.is_active)
        await it.pilot.press(*"what", "question_mark")
        assert it.app.main.prompt.value == "what?"


@pytest.mark.parametrize("width", [30, 60, 110])
def test_the_help_has_every_action_and_every_number(width: int) -> None:
    from macspec.app.keys import Keys

    lines = [line.plain for line in page(Keys({"tint": "f5"}), width)]
    text = "\n".join(lines)
    for action in ACTIONS:
        assert f"/{action.slash}" in text, action.id
        assert action.about.split()[0] in text
    for name, _ in HELP:
        assert name in " ".join(text.split())
    assert "F5" in text
    assert max(map(len, lines)) <= width


async def test_the_palette_does_what_is_chosen(running: Callable[..., Any]) -> None:
    async with running() as it:
        await it.pilot.press("ctrl+p")
        await it.until(lambda: "Search commands" in it.screen)
        await it.pilot.press(*"method ngram")
        await it.until(lambda: "Method: ngram" in it.screen)
        await it.pilot.press("down", "enter")
        await it.until(lambda: it.engine.tuning.method == "ngram")


async def test_the_palette_says_what_makes_no_sense_now(running: Callable[..., Any]) -> None:
    async with running() as it:
        await it.pilot.press("ctrl+p")
        await it.pilot.press(*"regenerate")
        await it.until(lambda: "Not now: this conversation is empty." in it.screen)


async def test_keys_of_ones_own(running: Callable[..., Any], settings: Path) -> None:
    settings.write_text('[keys]\ntint = "ctrl+e"\nhelp = "f9"\n')
    async with running() as it:
        await it.pilot.press("ctrl+e")
        await it.until(lambda: it.app.main.transcript.tint)
        await it.pilot.press("f9")
        await it.until(lambda: "While you write" in it.screen)


async def test_choices_are_remembered(running: Callable[..., Any], settings: Path) -> None:
    settings.write_text("# mine\n")
    async with running() as it:
        await it.pilot.press("ctrl+t")
        await it.send("/theme macspec-light")
        await it.until(lambda: it.app.theme == "macspec-light")
        await it.until(lambda: "macspec-light" in settings.read_text())
    assert settings.read_text().startswith("# mine\n")
    app = load(settings, {}).config.app
    assert (app.theme, app.tint) == ("macspec-light", True)
    async with running() as it:
        assert it.app.theme == "macspec-light"
        assert it.app.main.transcript.tint


async def test_a_choice_that_cannot_be_kept_is_said(
    running: Callable[..., Any], settings: Path
) -> None:
    async with running() as it:
        settings.write_text("[app\n")
        await it.pilot.press("ctrl+t")
        await it.until(lambda: it.status.startswith("not saved: "))
        assert it.app.main.transcript.tint
    assert settings.read_text() == "[app\n"


async def test_an_unknown_theme_of_the_settings(
    running: Callable[..., Any], settings: Path
) -> None:
    settings.write_text('[app]\ntheme = "sunny"\n')
    async with running() as it:
        assert it.status == "there is no theme sunny; /theme lists them"
        assert it.app.theme == "macspec-dark"


async def test_the_first_run_has_a_card_and_later_ones_have_not(
    running: Callable[..., Any],
) -> None:
    async with running("Yes.") as it:
        assert WHAT[:30] in it.screen
        await it.ask("Hello")
        assert WHAT[:30] not in it.screen
    async with running("Yes.") as it:
        assert WHAT[:30] not in it.screen
        assert "continues an earlier conversation" in it.screen
        await it.send("/about")
        await it.until(lambda: WHAT[:30] in it.screen)


async def test_a_window_that_is_too_small_asks_for_room(running: Callable[..., Any]) -> None:
    async with running("Yes.") as it:
        await it.pilot.press(*"half a thought")
        await it.pilot.resize_terminal(39, 12)
        await it.until(lambda: it.screen.startswith("macspec needs 40x12; this is 39x12"))
        assert "half a thought" not in it.screen
        await it.pilot.resize_terminal(40, 12)
        await it.until(lambda: "half a thought" in it.screen)
        await it.until(lambda: it.app.main.prompt.area.has_focus)


async def test_the_panel_is_a_line_where_there_is_little_room(
    running: Callable[..., Any],
) -> None:
    async with running("Yes.", size=(80, 24)) as it:
        await it.ask("Hello")
        await it.until(lambda: "tok/s" in it.screen)
        assert not it.app.main.panel.region
        await it.pilot.resize_terminal(120, 36)
        await it.until(lambda: it.app.main.panel.region)


async def test_plain_keys_of_actions_reach_the_app(running: Callable[..., Any]) -> None:
    """No widget that can have the focus takes one of them, but for the sliders."""
    async with running("Yes.") as it:
        await it.ask("Hello")
        plain = {key for _, key in it.app.keys if len(key) == 1 or key in ("left", "right")}
        main = it.app.main
        for widget in (main.transcript, main.panel):
            taken = {
                key
                for each in widget.ancestors_with_self
                if each is not main and each is not it.app
                for key in each._bindings.key_to_bindings
            }
            assert not taken & plain, widget
        assert isinstance(main.sliders, Sliders)


async def test_ctrl_c_twice_leaves(
    running: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("macspec.app.app.TWICE", 3600)
    async with running(LONG) as it:
        await it.send("Count")
        await it.until(lambda: it.engine.playing)
        it.engine.play(3)
        await it.pilot.press(*"unsent")
        await it.pilot.press("ctrl+c")
        assert it.status == "press Ctrl+C again to quit; your chat is saved"
        await it.until(lambda: not it.app.conversation.busy)
        assert it.app.is_running
        await it.pilot.press("ctrl+c")
        await it.until(lambda: not it.app.is_running)
        assert it.app.return_code == 0
    with sqlite3.connect(tmp_path / "chats.db") as connection:
        assert connection.execute("SELECT unsent FROM chats").fetchone() == ("unsent",)
        states = [state for (state,) in connection.execute("SELECT state FROM messages")]
        assert states == ["complete", "stopped"]


async def test_ctrl_c_clears_the_prompt_first(
    running: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("macspec.app.app.TWICE", 0.01)
    async with running() as it:
        await it.pilot.press(*"a thought", "ctrl+c")
        await it.until(lambda: not it.status)  # The hint stays as long as it holds.
        await it.pilot.press("up")
        assert it.app.main.prompt.value == "a thought"
        monkeypatch.setattr("macspec.app.app.TWICE", 3600)
        it.app._armed = -3600
        await it.pilot.press("ctrl+c")
        assert it.status.startswith("cleared, ")
        await it.pilot.press("ctrl+c")
        await it.until(lambda: not it.app.is_running)
    with sqlite3.connect(tmp_path / "chats.db") as connection:
        assert connection.execute("SELECT unsent FROM chats").fetchone() == ("a thought",)


async def test_new_text_out_of_view_is_announced(running: Callable[..., Any]) -> None:
    long = "\n\n".join(f"line{number}" for number in range(60))
    async with running(long, long) as it:
        await it.ask("One")
        await it.send("Two")
        await it.until(lambda: it.engine.playing)
        it.engine.play(4)
        await it.until(lambda: "Two" in it.screen)
        it.app.main.transcript.scroll_home(animate=False)
        it.engine.play(4)
        await it.until(lambda: "↓ new text below" in it.screen)
        await it.pilot.press("tab", "G")
        await it.until(lambda: "↓ new text below" not in it.screen)
        it.engine.play_all()


async def test_leaving_lets_go_of_the_engine(running: Callable[..., Any]) -> None:
    left = []
    async with running(farewell=lambda: left.append(True)) as it:
        await it.pilot.press("ctrl+q")
        await it.until(lambda: left)


async def test_an_error_in_an_action_is_a_line(
    running: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running("Yes.") as it:

        async def broken(argument: str) -> None:
            raise ZeroDivisionError("no such thing")

        monkeypatch.setattr(it.app, "do_follow", broken)
        await it.send("/follow")
        await it.until(lambda: "unexpected ZeroDivisionError" in it.status)
        await it.ask("Hello")
        assert it.app.conversation.turns[-1].text == "Yes."


async def test_a_crash_keeps_what_was_typed_and_prints_no_locals(
    running: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from macspec.app.leaving import log_path

    async def crashing() -> Any:
        async with running("Yes.") as it:
            await it.ask("words of the chat")
            await it.pilot.press(*"unsent")

            def broken() -> None:
                said = it.app.conversation.turns[0].text
                raise ZeroDivisionError(len(said))

            driven.append(it)
            it.app.call_later(broken)
            await it.until(lambda: not it.app.is_running)

    driven: list[Any] = []
    with pytest.raises(ZeroDivisionError):
        await crashing()
    (it,) = driven
    assert it.app.return_code == 2
    assert it.app.fault.startswith("unexpected ZeroDivisionError")
    assert "words of the chat" not in "".join(capsys.readouterr()) + log_path().read_text()
    with sqlite3.connect(tmp_path / "chats.db") as connection:
        assert connection.execute("SELECT unsent FROM chats").fetchone() == ("unsent",)


async def test_what_is_typed_is_saved_before_anybody_leaves(
    running: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("macspec.app.sending.UNSENT", 0.01)
    async with running() as it:
        await it.pilot.press(*"half a thought")
        await it.until(lambda: it.store.chats() and it.store.chats()[0].unsent == "half a thought")


async def test_where_it_was_left(running: Callable[..., Any]) -> None:
    async with running("Blue.") as it:
        await it.ask("What colour is the sky?")
        await it.pilot.press(*"and the sea")
        await it.pilot.press("ctrl+q")
        await it.until(lambda: not it.app.is_running)
        id = it.app.conversation.chat.id
    async with running(chat=id) as it:
        assert "Blue." in it.screen
        assert it.app.main.prompt.value == "and the sea"
        await it.pilot.press("up", "up")
        await it.until(lambda: it.app.main.prompt.value == "What colour is the sky?")


async def test_nothing_of_the_model_reaches_the_terminal(running: Callable[..., Any]) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J[bold red]markup[/] \x9b31m done"
    engine = ScriptedEngine(evil)
    async with running(engine=engine) as it:
        await it.ask("[link=x]Hello[/link] \x1b[31m")
        await it.until(lambda: "done" in it.screen)
        assert "\x1b" not in it.screen
        assert "\x9b" not in it.screen
        assert "[bold red]markup[/]" in it.screen
        assert "[link=x]Hello[/link]" in it.screen


async def test_timers_do_nothing_once_the_screen_is_being_taken_down(
    running: Callable[..., Any],
) -> None:
    async with running("Blue.") as it:
        await it.ask("Which colour?")
        await it.app.main.query(Prompt).remove()
        assert not it.app.shown
        it.app.show_state()
        await it.app._look_elsewhere()
