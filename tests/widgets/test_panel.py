"""The panel and its sliders: every way to move one, and what is painted again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from panelhost import PanelHost
from panelstates import READY, STREAMING
from screentext import seen
from textual.pilot import Pilot

from macspec.app.panel.panel import Panel, Summary
from macspec.app.panel.panelstate import PanelState
from macspec.app.panel.sliders import Sliders, SliderState, slider_lines
from macspec.app.widgets.lines import LinesView

SIZE = (36, 40)


def tuning(pilot: Pilot[Any]) -> Sliders:
    return pilot.app.query_one(Sliders)


def said(widget: LinesView) -> str:
    return "\n".join("".join(text for text, _ in line).rstrip() for line in widget.lines)


async def click(pilot: Pilot[Any], word: str, then: int = 0) -> None:
    """Click on a word of the sliders, or so many columns after its beginning."""
    for y, line in enumerate(said(tuning(pilot)).splitlines()):
        if word in line:
            await pilot.click(Sliders, offset=(line.index(word) + then, y))
            return
    raise AssertionError(f"no {word} in\n{said(tuning(pilot))}")


@pytest.mark.parametrize(
    ("state", "keys", "asked"),
    [
        (READY, ["right"], [{"depth": 1}]),
        (STREAMING, ["right", "right"], [{"depth": 5}, {"depth": 6}]),
        (replace(READY, depth=0), ["left"], [{"depth": "auto"}]),
        (replace(READY, depth=20), ["right"], [{"depth": 21}]),
        (replace(READY, depth=32), ["left"], [{"depth": 31}]),
        (replace(READY, depth=32), ["right"], []),
        (READY, ["left"], []),
        (READY, ["7"], [{"depth": 7}]),
        (READY, ["1", "2"], [{"depth": 1}, {"depth": 12}]),
        (READY, ["3", "2"], [{"depth": 3}, {"depth": 32}]),
        (READY, ["4", "7"], [{"depth": 4}, {"depth": 7}]),
        (replace(READY, depth=3), ["a"], [{"depth": "auto"}]),
        (READY, ["down", "right"], [{"method": "draft"}]),
        (READY, ["j", "l", "l"], [{"method": "draft"}, {"method": "ngram"}]),
        (replace(READY, method="off"), ["down", "a"], [{"method": "auto"}]),
        (READY, ["down", "down", "right"], [{"rule": "keyed"}]),
        (READY, ["up", "right"], [{"sampling": {"temperature": 0.75}}]),
        (replace(READY, temperature=0.0), ["k", "h"], []),
    ],
)
async def test_keys(
    state: PanelState,
    keys: list[str],
    asked: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("macspec.app.panel.sliders.monotonic", lambda: 0.0)
    app = PanelHost(state)
    async with app.run_test(size=SIZE) as pilot:
        tuning(pilot).focus()
        await pilot.press(*keys)
        await pilot.pause()
        assert app.asked == asked


async def test_the_mouse_sets_and_drags() -> None:
    app = PanelHost(READY)
    async with app.run_test(size=SIZE) as pilot:
        await click(pilot, "keyed")
        await click(pilot, "suffix")
        await click(pilot, "auto", 5 + 6)
        assert app.asked == [{"rule": "keyed"}, {"method": "suffix"}, {"depth": 12}]
        await pilot.mouse_down(Sliders, offset=(12 + 2, 1))
        await pilot.hover(Sliders, offset=(12 + 9, 1))
        await pilot.hover(Sliders, offset=(12 + 9, 3))
        await pilot.mouse_up(Sliders, offset=(12 + 9, 3))
        await pilot.hover(Sliders, offset=(12 + 3, 1))
        assert app.asked[3:] == [{"depth": 4}, {"depth": 18}]
        await click(pilot, "temp", 7)
        assert app.asked[5:] == [{"sampling": {"temperature": 0.0}}]


async def test_a_change_waits_until_it_is_confirmed() -> None:
    app = PanelHost(READY)
    async with app.run_test(size=SIZE) as pilot:
        tuning(pilot).focus()
        await pilot.press("4", "down", "right")
        assert "waiting for the engine" in said(tuning(pilot))
        app.show(replace(READY, depth=4))
        assert tuning(pilot).state.asked == {"method": "draft"}
        app.show(replace(READY, depth=4, method="draft"))
        assert "waiting" not in said(tuning(pilot))
        assert tuning(pilot).state.known["depth"] == 4


async def test_what_is_refused_goes_back_with_the_reason() -> None:
    app = PanelHost(READY)
    async with app.run_test(size=SIZE) as pilot:
        tuning(pilot).focus()
        height = tuning(pilot).size.height
        await pilot.press("down", "right")
        reason = "there is no draft model: this pair has none, \x1b[31mand\x1b[0m none was named"
        tuning(pilot).refused("method", "draft", reason)
        await pilot.pause()
        assert tuning(pilot).state.value("method") == "auto"
        assert "this pair has none" in " ".join(seen(app).split())
        assert "\x1b" not in seen(app)
        assert tuning(pilot).size.height > height
        await pilot.press("up")
        await pilot.pause()
        assert "no draft model" not in seen(app)
        assert tuning(pilot).size.height == height


async def test_an_answer_that_comes_late_leaves_a_newer_wish_alone() -> None:
    app = PanelHost(READY)
    async with app.run_test(size=SIZE) as pilot:
        tuning(pilot).focus()
        await pilot.press("4", "5")
        app.show(replace(READY, depth=4))
        assert tuning(pilot).state.value("depth") == 5
        tuning(pilot).refused("depth", 4, "no")
        assert tuning(pilot).state.value("depth") == 5
        tuning(pilot).refused("depth", 5, "no")
        assert tuning(pilot).state.value("depth") == 4


async def test_in_a_strip_two_sliders_lie_beside_each_other() -> None:
    app = PanelHost(READY, narrow=True)
    async with app.run_test(size=(80, 24)) as pilot:
        assert tuning(pilot).size.height == 4
        await click(pilot, "suffix")
        await click(pilot, "temp", 7)
        assert app.asked == [{"method": "suffix"}, {"sampling": {"temperature": 0.0}}]


async def test_on_a_low_screen_there_is_one_slider() -> None:
    app = PanelHost(READY, narrow=True)
    async with app.run_test(size=(40, 12)) as pilot:
        tuning(pilot).focus()
        await pilot.press("down", "down", "right")
        assert tuning(pilot).size.height == 2
        assert said(tuning(pilot)).startswith("rule")
        assert app.asked == [{"rule": "keyed"}]


async def test_a_narrow_slider_can_be_clicked_too() -> None:
    app = PanelHost(READY)
    async with app.run_test(size=(28, 40)) as pilot:
        await click(pilot, "method", 12)
        await click(pilot, "rule", 12)
        await click(pilot, "rule", 7)
        assert app.asked == [{"method": "draft"}, {"rule": "keyed"}, {"rule": "block"}]


async def test_only_what_changed_is_painted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    app = PanelHost(STREAMING)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        panel = app.query_one(Panel)
        painted: list[int] = []
        drawn = Panel.render_line

        def counted(self: Panel, y: int) -> Any:
            painted.append(y)
            return drawn(self, y)

        monkeypatch.setattr(Panel, "render_line", counted)
        layouts = app.screen._layout_required
        app.show(replace(STREAMING, acceptance=0.5))
        await pilot.pause()
        assert len(painted) == 1
        assert app.screen._layout_required == layouts
        painted.clear()
        app.show(replace(STREAMING, acceptance=0.5))
        await pilot.pause()
        assert not painted
        assert "50%" in said(panel)


async def test_a_line_under_the_mouse_is_explained() -> None:
    app = PanelHost(STREAMING)
    async with app.run_test(size=SIZE) as pilot:
        panel = app.query_one(Panel)
        lines = said(panel).splitlines()
        y = next(y for y, line in enumerate(lines) if line.startswith("accepted"))
        await pilot.hover(Panel, offset=(3, y))
        assert "accepted" in str(panel.tooltip)
        y = next(y for y, line in enumerate(lines) if line.startswith("computed by"))
        await pilot.hover(Panel, offset=(3, y))
        assert "MLX's attention" in str(panel.tooltip)


async def test_colours_follow_the_theme() -> None:
    app = PanelHost(STREAMING)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        panel = app.query_one(Panel)
        dark = panel.render_line(0)
        app.theme = "macspec-light"
        await pilot.pause()
        assert panel.render_line(0).text == dark.text
        assert panel.render_line(0) != dark


@pytest.mark.parametrize("size", [(120, 36), (60, 20), (40, 12)])
async def test_the_summary_has_what_matters_most(size: tuple[int, int]) -> None:
    app = PanelHost(STREAMING, narrow=True)
    async with app.run_test(size=size):
        line = said(app.query_one(Summary))
        assert "41.3" in line
        assert "1.75×" in line
        assert "draft 4" in line
        app.show(replace(READY, activity="loading", progress=0.4, passes=0))
        assert "40%" in said(app.query_one(Summary))


@pytest.mark.parametrize(("temperature", "shown"), [(0.0, "   0"), (0.7, "0.70"), (100.0, " 100")])
def test_the_temperature_is_the_one_that_is_set(temperature: float, shown: str) -> None:
    state = SliderState(
        {"depth": "auto", "method": "auto", "rule": "block", "temperature": temperature}
    )
    last = "".join(text for text, _ in slider_lines(state, 40)[4])
    assert last.startswith("temp")
    assert last.endswith(f" {shown}")
