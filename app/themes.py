"""Themes: macspec's own two and Textual's, each adapted to what the terminal can show.

With 16 colours, every theme becomes a dark or a light one made of them; with NO_COLOR there are
none, and selections are in reverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.filter import LineFilter, NoColor
from textual.theme import BUILTIN_THEMES, Theme

NAMES = ("macspec-dark", "macspec-light", "dark-16", "light-16")
"""macspec's own themes, and those that replace any dark or light one on 16 colours. They paint the
background too, since the terminal's own may be light or dark."""

COLOURS = {
    "foreground": ("#e4e6eb", "#1c1f25", "#ffffff", "#000000"),
    "background": ("#14161b", "#fcfcfa", "#000000", "#ffffff"),
    "surface": ("#1c1f26", "#f2f2ee", "#000000", "#ffffff"),
    "panel": ("#262a33", "#e7e7e2", "#000000", "#ffffff"),
    "primary": ("#82aaff", "#1c5bb8", "#00aaaa", "#0000aa"),
    "secondary": ("#6fd3dc", "#00646f", "#55ffff", "#0000aa"),
    "accent": ("#c8a2ff", "#6a1fa8", "#ff55ff", "#0000aa"),
    "success": ("#86d992", "#1c6a2d", "#55ff55", "#0000aa"),
    "warning": ("#ffb65c", "#6e3b00", "#ffff55", "#aa0000"),
    "error": ("#ff8890", "#a51626", "#ff5555", "#aa0000"),
}
"""The colours of each of ``NAMES``."""

VARIABLES = {
    ("text-muted", "foreground-muted", "markdown-h6-color"): (
        ("#a9afbb", "#51565f", "#aaaaaa", "#000000")
    ),
    ("text-disabled", "foreground-disabled"): ("#8b919e", "#575c66", "#aaaaaa", "#000000"),
    ("border-blurred",): ("#6f7787", "#767a82", "#aaaaaa", "#000000"),
    ("block-cursor-foreground",): ("#14161b", "#ffffff", "#000000", "#ffffff"),
    ("block-cursor-blurred-background",): ("#3a4152", "#cfd8e8", "#0000aa", "#55ffff"),
    ("input-selection-foreground", "screen-selection-foreground"): (
        ("#ffffff", "#101216", "#ffffff", "#ffffff")
    ),
    ("input-selection-background", "screen-selection-background"): (
        ("#2f5fb3", "#b4d0ff", "#0000aa", "#0000aa")
    ),
    ("scrollbar",): (None, None, "#aaaaaa", "#0000aa"),
    ("scrollbar-hover", "scrollbar-active"): (None, None, "#ffffff", "#0000aa"),
    ("block-hover-background",): (None, None, "#0000aa", "#55ffff"),
}
"""Groups of variables and their colour in each of ``NAMES``; None: derived by Textual."""

AS_COLOURS = {
    "text": "foreground",
    "border": "primary",
    "block-cursor-background": "primary",
    "block-cursor-blurred-foreground": "foreground",
    "input-cursor-foreground": "background",
    "input-cursor-background": "foreground",
    "footer-key-foreground": "accent",
}
"""Variables with one of these colours."""


def _theme(at: int) -> Theme:
    """The theme in a column of the tables."""
    colours: dict[str, Any] = {name: columns[at] for name, columns in COLOURS.items()}
    variables = {name: colours[colour] for name, colour in AS_COLOURS.items()}
    for names, columns in VARIABLES.items():
        if (colour := columns[at]) is not None:
            variables |= dict.fromkeys(names, colour)
    if NAMES[at].endswith("-16"):
        named = ("primary", "secondary", "accent", "success", "warning", "error")
        variables |= {f"text-{name}": colours[name] for name in named}
        variables["scrollbar-background"] = colours["boost"] = colours["background"]
    return Theme(NAMES[at], dark="dark" in NAMES[at], variables=variables, **colours)


DARK, LIGHT, DARK_16, LIGHT_16 = map(_theme, range(len(NAMES)))

OWN = (DARK, LIGHT)

PLAIN = Theme(
    name="plain",
    ansi=True,
    primary="ansi_default",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    variables={
        "ansi-background": "ansi_default",
        "ansi-foreground": "ansi_default",
        "block-cursor-background": "ansi_cyan",
        "block-cursor-blurred-background": "ansi_default",
        "block-cursor-blurred-text-style": "underline",
        "input-selection-background": "ansi_cyan",
        "screen-selection-background": "ansi_cyan",
    },
)
"""For NO_COLOR: a background only marks what is selected."""


WITHOUT = Style.from_color(Color.default(), Color.default())


class Colourless(LineFilter):
    """Removes all colours; text with a background of its own is shown in reverse."""

    def apply(self, segments: list[Segment], background: object) -> list[Segment]:
        return [Segment(text, _colourless(style)) for text, style, _ in segments]


@lru_cache(1024)
def _colourless(style: Style | None) -> Style | None:
    if style is None:
        return None
    marked = style.bgcolor is not None and not style.bgcolor.is_default
    return style + WITHOUT + Style(reverse=bool(style.reverse) != marked)


def register(app: App[Any]) -> None:
    """Register all themes, adapted to the app's terminal."""
    for theme in (*OWN, *BUILTIN_THEMES.values()):
        app.register_theme(_fitting(theme, app))
    if app.no_color:
        app._filters = [it for it in app._filters if not isinstance(it, NoColor)] + [Colourless()]


def names(app: App[Any]) -> Sequence[str]:
    """The names of all themes, macspec's own first."""
    own = [theme.name for theme in OWN]
    return [*own, *sorted(name for name in app.available_themes if name not in own)]


def _fitting(theme: Theme, app: App[Any]) -> Theme:
    if app.no_color:
        return replace(PLAIN, name=theme.name, dark=theme.dark)
    if theme.ansi or app.console.color_system in ("truecolor", "256"):
        return theme
    return replace(DARK_16 if theme.dark else LIGHT_16, name=theme.name)
