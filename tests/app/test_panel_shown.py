"""Where the panel is, how much of it, and that it moves while a reply comes."""

from __future__ import annotations

from typing import Any

import pytest
from scripted import Script, said

from macspec.app.panel.panel import Panel, Summary
from macspec.app.panel.sliders import Sliders

TEXT = "one two three four five six seven eight nine ten eleven twelve " * 6


def shown(it: Any) -> set[str]:
    kinds = (Panel, Summary, Sliders)
    return {
        type(widget).__name__
        for kind in kinds
        for widget in it.app.main.query(kind)
        if widget.size.area and all(above.display for above in widget.ancestors_with_self)
    }


async def test_beside_the_conversation_it_comes_and_goes(running: Any) -> None:
    async with running(TEXT) as it:
        assert shown(it) == {"Panel", "Sliders"}
        await it.pilot.press("ctrl+b")
        await it.until(lambda: shown(it) == set())
        await it.pilot.press("ctrl+b")
        await it.until(lambda: shown(it) == {"Panel", "Sliders"})


@pytest.mark.parametrize("size", [(80, 24), (60, 20), (40, 12)])
async def test_a_narrow_screen_has_its_line_then_all_of_it(
    running: Any, size: tuple[int, int]
) -> None:
    async with running(TEXT, size=size) as it:
        await it.ask("Count.")
        assert shown(it) == {"Summary"}
        await it.pilot.press("ctrl+b")
        await it.until(lambda: shown(it) == {"Panel"})
        assert "accepted" in it.screen
        await it.pilot.press("ctrl+b")
        await it.until(lambda: shown(it) == set())
        await it.pilot.press("ctrl+b")
        await it.until(lambda: shown(it) == {"Summary"})


@pytest.mark.parametrize("size", [(120, 36), (80, 24), (60, 20), (40, 12)])
async def test_the_dials_come_when_they_are_asked_for(running: Any, size: tuple[int, int]) -> None:
    async with running(TEXT, size=size) as it:
        await it.pilot.press("ctrl+g")
        await it.until(lambda: it.app.main.sliders.has_focus)
        await it.pilot.press("4")
        await it.until(lambda: it.engine.tuning.depth == 4)
        await it.until(lambda: not it.app.main.sliders.state.asked)
        assert it.app.main.sliders.state.known["depth"] == 4


async def test_what_the_engine_refuses_is_told_at_the_dial(running: Any) -> None:
    async with running(TEXT) as it:
        it.app.main.sliders.ask("temperature", 200.0)
        await it.until(lambda: "temperature must be" in it.app.main.sliders.state.reason)
        assert not it.app.main.sliders.state.asked
        assert it.app.main.sliders.state.known["temperature"] == pytest.approx(0.7)


async def test_it_moves_while_a_reply_comes_and_marks_what_was_changed(running: Any) -> None:
    async with running(Script(said(TEXT, seconds=0.25))) as it:
        await it.send("Count.")
        await it.until(lambda: it.engine.requests)
        it.engine.play(6)
        await it.until(lambda: it.app.main.panel.state.passes == 6)
        before = it.app.main.panel.lines
        await it.app.conversation.setup.tune(depth=3)
        it.engine.play(8)
        await it.until(lambda: it.app.main.panel.state.passes == 14)
        assert it.app.main.panel.lines != before
        assert "depth 3" in it.screen
        it.engine.play_all()
        await it.until(lambda: not it.app.conversation.busy)
