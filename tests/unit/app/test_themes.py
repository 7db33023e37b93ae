"""Colours that can be read, in whatever form the terminal shows them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import pytest
from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.terminal_theme import TerminalTheme
from textual.app import App
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme
from textual.widgets import Input, OptionList

from macspec.app import themes

RGB = tuple[int, int, int]

TEXT = ("text", "text-muted", "text-disabled", "foreground")
SIGNS = ("primary", "secondary", "accent", "success", "warning", "error")
GROUNDS = ("background", "surface", "panel")
PAIRS = (
    *((name, ground) for name in TEXT + SIGNS for ground in GROUNDS),
    *((f"text-{name}", "background") for name in SIGNS),
    ("block-cursor-foreground", "block-cursor-background"),
    ("block-cursor-blurred-foreground", "block-cursor-blurred-background"),
    ("foreground", "block-cursor-blurred-background"),
    ("input-cursor-foreground", "input-cursor-background"),
    ("input-selection-foreground", "input-selection-background"),
    ("screen-selection-foreground", "screen-selection-background"),
    ("footer-foreground", "footer-background"),
    ("footer-key-foreground", "footer-background"),
)

XTERM = (
    *((0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205)),
    *((0, 205, 205), (229, 229, 229), (127, 127, 127), (255, 0, 0), (0, 255, 0)),
    *((255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255), (255, 255, 255)),
)
VGA = (
    *((0, 0, 0), (170, 0, 0), (0, 170, 0), (170, 85, 0), (0, 0, 170), (170, 0, 170)),
    *((0, 170, 170), (170, 170, 170), (85, 85, 85), (255, 85, 85), (85, 255, 85)),
    *((255, 255, 85), (85, 85, 255), (255, 85, 255), (85, 255, 255), (255, 255, 255)),
)
TERMINAL_APP = (
    *((0, 0, 0), (194, 54, 33), (37, 188, 36), (173, 173, 39), (73, 46, 225), (211, 56, 211)),
    *((51, 187, 200), (203, 204, 205), (129, 131, 131), (252, 57, 31), (49, 231, 34)),
    *((234, 236, 35), (88, 51, 255), (249, 53, 248), (20, 240, 240), (233, 235, 235)),
)
VGA_THEME = TerminalTheme((0, 0, 0), (255, 255, 255), list(VGA[:8]), list(VGA[8:]))


def luminance(colour: RGB) -> float:
    parts = (value / 255 for value in colour)
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: RGB, other: RGB) -> float:
    """The ratio of WCAG 2, from 1 to 21."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def variables(theme: Theme) -> Mapping[str, str]:
    return {**theme.to_color_system().generate(), **theme.variables}


def exact(value: str) -> RGB:
    colour = Color.parse(value)
    assert colour.a == 1, value
    return colour.rgb


def of_256(value: str) -> RGB:
    colour = RichColor.from_rgb(*exact(value)).downgrade(ColorSystem.EIGHT_BIT)
    return colour.get_truecolor()


def test_the_ratio_is_that_of_the_rules() -> None:
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("shown", [exact, of_256])
@pytest.mark.parametrize("theme", themes.OWN, ids=lambda theme: theme.name)
def test_text_can_be_read(theme: Theme, shown: Callable[[str], RGB]) -> None:
    values = variables(theme)
    low = {
        pair: round(ratio, 2)
        for pair in PAIRS
        if (ratio := contrast(shown(values[pair[0]]), shown(values[pair[1]]))) < 4.5
    }
    assert not low
    frames = [contrast(shown(values["border-blurred"]), shown(values[name])) for name in GROUNDS]
    assert min(frames) >= 3


@pytest.mark.parametrize("palette", [XTERM, VGA, TERMINAL_APP], ids=["xterm", "vga", "apple"])
@pytest.mark.parametrize("theme", [themes.DARK_16, themes.LIGHT_16], ids=lambda theme: theme.name)
def test_sixteen_colours_can_be_read(theme: Theme, palette: tuple[RGB, ...]) -> None:
    def shown(value: str) -> RGB:
        colour = RichColor.from_rgb(*exact(value)).downgrade(ColorSystem.STANDARD)
        assert colour.number is not None
        near = zip(colour.get_truecolor(VGA_THEME), exact(value), strict=True)
        assert max(abs(one - other) for one, other in near) <= 2, "one of the sixteen"
        return palette[colour.number]

    values = variables(theme)
    low = {
        pair: round(ratio, 2)
        for pair in PAIRS
        if (ratio := contrast(shown(values[pair[0]]), shown(values[pair[1]]))) < 4
    }
    assert not low


@pytest.fixture(params=["truecolor", "256", "16", "none"])
def app(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> App[None]:
    for name in ("COLORTERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm" if request.param == "16" else "xterm-256color")
    if request.param == "truecolor":
        monkeypatch.setenv("COLORTERM", "truecolor")
    if request.param == "none":
        monkeypatch.setenv("NO_COLOR", "1")
    app: App[None] = App(ansi_color="NO_COLOR" in os.environ or None)
    themes.register(app)
    return app


async def test_every_theme_can_be_chosen_on_every_terminal(app: App[None]) -> None:
    offered = themes.names(app)
    assert offered[:2] == ["macspec-dark", "macspec-light"]
    assert set(offered) == {theme.name for theme in themes.OWN} | set(BUILTIN_THEMES)
    few = app.no_color or app.console.color_system == "standard"
    async with app.run_test():
        for name in offered:
            app.theme = name
            assert app.current_theme.name == name
            own = BUILTIN_THEMES.get(name, themes.DARK)
            assert app.current_theme.ansi == (app.no_color or own.ansi)
            if few and not own.ansi:
                assert app.current_theme.dark == BUILTIN_THEMES.get(name, app.current_theme).dark


@pytest.mark.parametrize("app", ["none"], indirect=True)
async def test_without_colours_the_chosen_line_is_reversed(app: App[None]) -> None:
    async with app.run_test(size=(20, 6)) as pilot:
        app.theme = "macspec-light"
        await app.mount(OptionList("one", "two"), Input("text"))
        for focused in (OptionList, Input):
            app.query_one(focused).focus()
            await pilot.pause()
            strips = app.screen._compositor.render_strips()
            segments = [segment for strip in strips for segment in strip if segment.style]
            assert all(
                colour is None or colour.is_default
                for segment in segments
                for colour in (segment.style.color, segment.style.bgcolor)
            )
            chosen = next(segment for segment in segments if "one" in segment.text)
            other = next(segment for segment in segments if "two" in segment.text)
            assert bool(chosen.style.reverse) == (focused is OptionList)
            assert bool(chosen.style.underline) == (focused is Input)
            assert not other.style.reverse
            assert not other.style.underline
