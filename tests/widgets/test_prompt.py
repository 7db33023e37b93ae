"""The prompt, typed into."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.message import Message
from textual.pilot import Pilot
from textual.widgets import Button, Static

from macspec.app import paths
from macspec.app.outside import EditorError
from macspec.app.prompt.prompt import Prompt
from macspec.app.slash import Completion

LONG = "\n".join(f"line {number}" for number in range(42))
NAME = "[pasted 42 lines #1]"


def commands(typed: str) -> Sequence[Completion]:
    names = ("models", "method", "[b]odd[/b]")
    if typed.startswith("/") and "/".join(typed.split()) != typed:
        return ()
    return [
        Completion(f"/{name} ", f"/{name}", f"about {name}\x1b[31m")
        for name in names
        if typed.startswith("/") and f"/{name}".startswith(typed)
    ]


class Host(App[None]):
    CSS = "Prompt { dock: bottom; }"

    def __init__(self, send_key: str = "enter") -> None:
        super().__init__()
        self.prompt = Prompt(send_key=send_key)
        self.prompt.popup.complete = lambda typed: commands(typed) or paths.mentioned(typed)
        self.got: list[Message] = []

    def compose(self) -> ComposeResult:
        yield Static("above")
        yield Button("elsewhere")
        yield self.prompt

    def on_mount(self) -> None:
        self.prompt.focus()

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        self.got.append(event)


Typing = tuple[Host, Prompt, Pilot[None]]


@asynccontextmanager
async def typing(
    send_key: str = "enter", size: tuple[int, int] = (60, 20)
) -> AsyncIterator[Typing]:
    host = Host(send_key)
    async with host.run_test(size=size) as pilot:
        yield host, host.prompt, pilot


async def paste(prompt: Prompt, pilot: Pilot[None], text: str) -> None:
    prompt.area.post_message(events.Paste(text))
    await pilot.pause()


def sent(host: Host) -> list[str]:
    return [event.text for event in host.got if isinstance(event, Prompt.Submitted)]


async def test_enter_sends_and_other_keys_make_lines() -> None:
    async with typing() as (host, prompt, pilot):
        await pilot.press("enter", "space", "enter")
        assert host.got == []
        prompt.load("")
        for number, key in enumerate(["ctrl+j", "shift+enter", "alt+enter", "ctrl+enter"]):
            await pilot.press(str(number), key)
        await pilot.press("x", "\\", "enter", "y")
        assert prompt.value == "0\n1\n2\n3\nx\ny"
        await pilot.press("enter")
        assert sent(host) == ["0\n1\n2\n3\nx\ny"]
        assert prompt.value == ""


async def test_the_keys_can_be_swapped() -> None:
    async with typing("ctrl+j") as (host, _prompt, pilot):
        await pilot.press("a", "\\", "enter", "b", "ctrl+j")
        assert sent(host) == ["a\\\nb"]


async def test_a_backslash_in_the_middle_is_text() -> None:
    async with typing() as (host, _prompt, pilot):
        await pilot.press("\\", "x", "left", "enter")
        assert sent(host) == ["\\x"]


async def test_it_grows_to_a_cap_and_shrinks() -> None:
    async with typing(size=(60, 30)) as (_, prompt, pilot):
        heights = []
        for lines in (1, 3, 40, 1):
            prompt.load("\n".join("x" * lines))
            await pilot.pause()
            heights.append(prompt.area.size.height)
        assert heights == [1, 3, 10, 1]
        prompt.load("word " * 30)
        await pilot.pause()
        assert prompt.area.size.height == 3


async def test_history_goes_up_and_down_and_keeps_what_was_typed() -> None:
    async with typing() as (host, prompt, pilot):
        prompt.set_history(["first", "two\nlines"])
        await pilot.press(*"new")
        seen = []
        for key in ("up", "up", "up", "down", "down", "down", "down"):
            await pilot.press(key)
            seen.append(prompt.value)
        assert seen == ["two\nlines", "first", "first", "two\nlines", "new", "new", "new"]
        await pilot.press("up", "!", "down", "down", "up")
        assert prompt.value == "two!\nlines"
        assert prompt.unsent == "new\n\ntwo!\nlines"
        await pilot.press("enter", "up")
        assert sent(host) == ["two!\nlines"]
        assert prompt.value == "two!\nlines"
        assert prompt.unsent == ""


async def test_up_goes_through_wrapped_rows_first() -> None:
    async with typing() as (_, prompt, pilot):
        prompt.set_history(["first"])
        prompt.load("word " * 20)
        await pilot.press("up")
        assert prompt.value == "word " * 20
        await pilot.press("up")
        assert prompt.value == "first"


async def test_a_long_paste_is_one_unit() -> None:
    async with typing() as (host, prompt, pilot):
        await pilot.press("a")
        await paste(prompt, pilot, LONG.replace("\n", "\r\n"))
        await pilot.press("b")
        assert prompt.area.text == f"a{NAME}b"
        await pilot.press("left", "left", "x", "right", "y")
        assert prompt.area.text == f"ax{NAME}yb"
        prompt.area.move_cursor((0, 10))
        assert prompt.area.cursor_location in ((0, 2), (0, 2 + len(NAME)))
        prompt.area.move_cursor((0, 2 + len(NAME)))
        await pilot.press("backspace")
        assert prompt.area.text == "axyb"
        prompt.area.undo()
        prompt.area.move_cursor((0, 2))
        await pilot.press("delete")
        assert prompt.area.text == "axyb"
        prompt.area.undo()
        prompt.area.move_cursor((0, 3 + len(NAME)))
        await pilot.press("ctrl+w")
        assert prompt.area.text == f"ax{NAME}b"
        await pilot.press("ctrl+w")
        assert prompt.area.text == "axb"
        prompt.area.undo()
        await pilot.press("enter")
        assert sent(host) == [f"ax{LONG}yb"]
        await pilot.press("up")
        assert prompt.area.text == f"ax{NAME}yb"
        assert prompt.value == f"ax{LONG}yb"


async def test_short_pastes_are_text_and_line_ends_are_newlines() -> None:
    async with typing() as (host, prompt, pilot):
        await paste(prompt, pilot, "one\rtwo\r\nthree")
        assert prompt.area.text == prompt.value == "one\ntwo\nthree"
        await paste(prompt, pilot, "")
        await pilot.press("enter")
        assert sent(host) == ["one\ntwo\nthree"]


async def test_control_characters_are_shown_and_kept() -> None:
    async with typing() as (host, prompt, pilot):
        text = "a\x1b[31mred\x07\u202e \x0c\x85\u2028\ttab\x9b"
        await paste(prompt, pilot, text)
        await pilot.press("x", "left", "left", "left")
        assert prompt.value == f"{text}x"
        shown = "".join(str(prompt.area.render_line(row).text) for row in range(2))
        assert "a␛[31mred␇� ␌�" in shown
        assert not {"\x1b", "\x07", "\x0c", "\x85", "\x9b", "\u202e"} & set(shown)
        await pilot.press("enter")
        assert sent(host) == [f"{text}x"]


async def test_a_paste_elsewhere_is_not_lost() -> None:
    async with typing() as (_, prompt, pilot):
        prompt.load("ab")
        prompt.area.select_all()
        await paste(prompt, pilot, "new")
        assert prompt.value == "new"
        prompt.area.undo()
        assert prompt.value == "ab"


async def test_completions_above_the_prompt() -> None:
    async with typing() as (host, prompt, pilot):
        await pilot.press("/")
        await pilot.pause()
        assert prompt.popup.open
        assert prompt.popup.region.bottom == prompt.region.y
        assert prompt.popup.region.height == 3
        rows = [
            "".join(segment.text for segment in prompt.popup.render_line(row)) for row in range(3)
        ]
        assert "/models" in rows[0]
        assert "about models␛[31m" in rows[0]
        assert "/[b]odd[/b]" in rows[2]
        await pilot.press("m", "down", "tab")
        assert prompt.value == "/method "
        assert not prompt.popup.open
        await pilot.press("x", "enter")
        assert sent(host) == ["/method x"]


async def test_tab_right_after_the_last_letter() -> None:
    async with typing() as (_host, prompt, pilot):
        for key in ("/", "m", "o", "tab"):
            prompt.area.post_message(events.Key(key, key if len(key) == 1 else "\t"))
        await pilot.pause()
        assert prompt.value == "/models "
        assert prompt.area.has_focus


async def test_keys_that_come_all_at_once_act_in_their_order() -> None:
    async with typing() as (host, prompt, pilot):
        for key in ("a", "b", "backspace", "c", "left", "d", "ctrl+e", "e", "ctrl+w", "f"):
            prompt.area.post_message(events.Key(key, key if len(key) == 1 else None))
        await pilot.pause()
        assert prompt.value == "f"
        prompt.set_history(["sent"])
        for key in ("ctrl+u", "g", "up", "!", "down", "h", "enter"):
            prompt.area.post_message(events.Key(key, key if len(key) == 1 else None))
        await pilot.pause()
        assert sent(host) == ["gh"]


async def test_enter_takes_what_is_highlighted() -> None:
    async with typing() as (host, prompt, pilot):
        await pilot.press("/", "m", "up", "up", "enter")
        assert prompt.value == "/models "
        assert sent(host) == []


async def test_esc_closes_completions_until_something_else_is_typed() -> None:
    async with typing() as (_host, prompt, pilot):
        await pilot.press("/", "m", "escape")
        assert not prompt.popup.open
        assert prompt.value == "/m"
        await pilot.press("o")
        await pilot.pause()
        assert not prompt.popup.open
        await pilot.press("x", "backspace", "backspace")
        await pilot.pause()
        assert prompt.popup.open


async def test_a_click_takes_a_completion() -> None:
    async with typing() as (_, prompt, pilot):
        await pilot.press("/", "m")
        await pilot.pause()
        await pilot.click(prompt.popup, offset=(3, 1))
        assert prompt.value == "/method "
        assert prompt.area.has_focus


async def test_files_go_into_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my notes.md").write_text("here\n")
    async with typing() as (host, prompt, pilot):
        await pilot.press(*"see @my", "tab")
        await paste(prompt, pilot, f"{LONG} @nothing/of/this")
        await pilot.press("enter")
        (event,) = host.got
        assert isinstance(event, Prompt.Submitted)
        assert event.text == f'see @"my notes.md" {LONG} @nothing/of/this'
        text, notices = event.message()
        block = "`my notes.md`:\n```md\nhere\n```"
        assert text == f"see `my notes.md` {LONG} @nothing/of/this\n\n{block}"
        assert notices == []
        prompt.edit(1, text, "message 1")
        assert prompt.area.text == f"see `my notes.md` [pasted 42 lines #1]\n\n{block}"


async def test_editing_a_message_and_leaving_it() -> None:
    async with typing() as (host, prompt, pilot):
        await pilot.press(*"unsent")
        prompt.edit(7, "said", "message 3")
        await pilot.pause()
        assert prompt.has_class("-editing")
        assert "editing message 3" in str(prompt.query_one("#editing", Static).content)
        assert prompt.unsent == "unsent"
        await pilot.press("!")
        assert prompt.unsent == "unsent\n\nsaid!"
        await pilot.press("escape")
        assert prompt.value == "unsent"
        assert not prompt.editing
        assert not host.got
        await pilot.press("up")
        assert prompt.value == "said!"


async def test_editing_a_message_and_sending_it() -> None:
    async with typing() as (host, prompt, pilot):
        prompt.load(LONG)
        prompt.edit(7, "said", "message 3")
        prompt.edit(8, "other", "message 4")
        await pilot.press("!", "enter")
        (event,) = host.got
        assert isinstance(event, Prompt.Submitted)
        assert (event.turn_id, event.text, event.message()[0]) == (8, "other!", "other!")
        assert prompt.value == LONG
        assert not prompt.editing


async def test_what_could_not_be_sent_comes_back_before_what_was_typed_since() -> None:
    async with typing() as (_, prompt, pilot):
        await pilot.press("a", "enter", "b")
        prompt.give_back("a")
        assert prompt.value == "a\n\nb"
        prompt.load("")
        prompt.give_back("a")
        assert prompt.value == "a"


async def test_the_editor(monkeypatch: pytest.MonkeyPatch) -> None:
    async with typing() as (host, prompt, _pilot):
        prompt.load(f"{LONG} end")
        with pytest.raises(EditorError, match="cannot be handed"):
            prompt.open_editor()
        assert prompt.value == f"{LONG} end"
        driver = host._driver
        assert driver is not None
        monkeypatch.setattr(type(driver), "can_suspend", True)
        monkeypatch.setenv("VISUAL", "sed -i s/end/written/")
        monkeypatch.setattr("macspec.app.outside.AT_ONCE_S", 0)
        prompt.open_editor()
        assert prompt.value == f"{LONG} written"
        monkeypatch.setenv("VISUAL", "false")
        with pytest.raises(EditorError, match="ended with status 1"):
            prompt.open_editor()
        assert prompt.value == f"{LONG} written"
        assert prompt.area.has_focus


@pytest.mark.parametrize("make", [lambda: "x" * 19_999, lambda: "word " * 40_000])
async def test_a_huge_text_is_edited_as_any_other(make: Callable[[], str]) -> None:
    async with typing() as (host, prompt, pilot):
        prompt.load(make())
        await pilot.press("end", "!", "enter")
        assert sent(host) == [make() + "!"]


async def test_tab_leaves_the_prompt() -> None:
    async with typing() as (host, prompt, pilot):
        await pilot.press("x", "tab")
        assert isinstance(host.focused, Button)
        assert prompt.value == "x"


async def test_a_low_screen_leaves_less_room() -> None:
    async with typing(size=(40, 12)) as (_, prompt, pilot):
        await pilot.pause()
        assert prompt.region.height == 1
        prompt.load("x\n" * 20)
        await pilot.pause()
        assert prompt.region.height == 4
        await pilot.resize_terminal(40, 30)
        await pilot.pause()
        assert prompt.region.height == 12
        await pilot.resize_terminal(40, 12)
        await pilot.pause()
        assert prompt.region.height == 4
