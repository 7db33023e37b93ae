"""Depth, method, rule and temperature, in mid-reply too; pairs and what is looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripted import ScriptedEngine

from macspec.worker import Failed, PairChoice

LONG = " ".join(f"word{number}" for number in range(60))


async def test_depth_and_method_in_mid_reply(running: Callable[..., Any]) -> None:
    async with running(LONG) as it:
        await it.send("Count")
        await it.until(lambda: it.engine.playing)
        it.engine.play(3)
        await it.send("/depth 7")
        await it.until(lambda: it.engine.tuning.depth == 7)
        await it.pilot.press("ctrl+s")
        await it.until(lambda: it.engine.tuning.method == "draft")
        assert it.app.conversation.busy
        it.engine.play(3)
        await it.until(lambda: "depth 7" in it.screen or "method draft" in it.screen)
        it.engine.play_all()
        await it.until(lambda: not it.app.conversation.busy)
        assert it.app.conversation.turns[-1].text == LONG
        assert [mark.what for mark in it.app.conversation.panel().marks] == [
            "depth 7",
            "method draft",
        ]


async def test_the_dials(running: Callable[..., Any]) -> None:
    async with running() as it:
        await it.pilot.press("ctrl+g")
        await it.until(lambda: it.app.main.sliders.has_focus)
        await it.pilot.press("right")
        await it.until(lambda: it.engine.tuning.depth == 1)
        await it.pilot.press("down", "right")
        await it.until(lambda: it.engine.tuning.method == "draft")
        await it.pilot.press("escape")
        assert it.app.main.prompt.area.has_focus


async def test_steps_from_where_the_engine_is(running: Callable[..., Any]) -> None:
    async with running(LONG) as it:
        await it.ask("Count")
        await it.pilot.press("tab", "plus")
        await it.until(lambda: it.engine.tuning.depth == 5)
        await it.pilot.press("minus")
        await it.until(lambda: it.engine.tuning.depth == 4)
        for _ in range(5):
            it.app.action_do("deeper")
        await it.until(lambda: it.engine.tuning.depth == 9)


async def test_on_a_narrow_terminal_the_dials_come_when_they_are_asked_for(
    running: Callable[..., Any],
) -> None:
    async with running(size=(60, 20)) as it:
        strip = it.app.main.query_one("#strip")
        assert not strip.display
        await it.pilot.press("ctrl+g")
        await it.until(lambda: strip.has_focus)
        assert "method" in it.screen
        await it.pilot.press("escape")
        await it.until(lambda: not strip.display)


async def test_what_cannot_be_is_said(running: Callable[..., Any]) -> None:
    async with running() as it:
        for line, told in (
            ("/depth 99", "depth is 99; it must be auto or 0 to 32"),
            (
                "/method magic",
                "unknown method 'magic'; choose from auto, draft",
            ),
            ("/temperature hot", '"hot" is not a number'),
            ("/sampling top_p 3", "top_p must be a number above 0 and at most 1"),
            ("/sampling luck 3", "unknown setting luck: choose from temperature"),
            ("/chats two", "two is not a conversation number"),
        ):
            await it.send(line)
            await it.until(lambda told=told: told in it.status)
        assert it.engine.tuning.depth == "auto"


async def test_sampling_of_this_conversation(running: Callable[..., Any]) -> None:
    async with running("Yes.") as it:
        await it.send("/sampling top_k 40")
        await it.until(lambda: it.app.conversation.tree.sampling.get("top_k") == 40)
        await it.ask("Hello")
        assert it.engine.tuning.sampling["top_k"] == 40
        assert it.app.conversation.chat.sampling["top_k"] == 40


async def test_another_pair_by_name_and_the_old_one_where_it_fails(
    running: Callable[..., Any], tmp_path: Path
) -> None:
    engine = ScriptedEngine("Yes.")
    async with running(engine=engine) as it:
        await it.ask("Hello")
        engine._loads = False
        await it.send(f"/models {tmp_path}")
        await it.until(lambda: len(engine.choices) == 2)
        assert engine.choices[-1] == PairChoice(str(tmp_path))
        engine.finish_load(Failed("refused", "there is no model in it"))
        await it.until(lambda: "there is no model in it" in it.screen)
        assert it.app.commands.loading.choice == PairChoice()
        await it.send(f"/models {tmp_path}")
        await it.until(lambda: len(engine.choices) == 3)
        engine.finish_load()
        await it.until(lambda: "now using " in it.screen)
        assert it.app.commands.loading.choice == PairChoice(str(tmp_path))


async def test_the_pair_of_the_settings_where_the_recalled_one_is_gone(
    running: Callable[..., Any],
) -> None:
    engine = ScriptedEngine(loads=False)
    async with running(
        engine=engine, pairs=[PairChoice("gone/model"), PairChoice("my/model")]
    ) as it:
        engine.finish_load(Failed("refused", "gone/model is not here"))
        await it.until(lambda: len(engine.choices) == 2)
        assert engine.choices[-1].target == "my/model"
        engine.finish_load()
        await it.until(lambda: it.app.commands.loading.choice.target == "my/model")


async def test_esc_stops_a_switch_but_not_the_first_load(running: Callable[..., Any]) -> None:
    engine = ScriptedEngine(loads=False)
    async with running(engine=engine) as it:
        await it.pilot.press("escape")
        engine.finish_load()
        await it.until(lambda: it.app.conversation.setup.choice is not None)
        await it.send("/models built-in")
        await it.until(lambda: len(engine.choices) == 2)
        await it.pilot.press("escape")
        await it.until(lambda: it.status == "loading stopped; still using the previous pair")


async def test_the_model_switcher(running: Callable[..., Any]) -> None:
    async with running() as it:
        await it.pilot.press("ctrl+l")
        await it.until(lambda: "choose a target" in it.screen)
        await it.pilot.press("escape")
        await it.until(lambda: it.app.main.is_active)


async def test_numbers_on_a_narrow_terminal(running: Callable[..., Any]) -> None:
    async with running("Yes and no.", size=(80, 24)) as it:
        await it.ask("Hello")
        assert "Drafting" not in it.screen
        await it.pilot.press("tab", "N")
        await it.until(lambda: "Drafting" in it.screen)
        await it.pilot.press("escape")
        await it.until(lambda: it.app.main.is_active)
