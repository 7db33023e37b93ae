"""Colours: two themes of macspec's own beside Textual's, each in the form that a terminal can show.

With 16 colours every theme becomes one that leaves text and background to the terminal; with
NO_COLOR there are none, and what is chosen stands out in reverse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.filter import LineFilter, NoColor
from textual.theme import BUILTIN_THEMES, Theme

DARK = Theme(
    name="macspec-dark",
    dark=True,
    foreground="#e4e6eb",
    background="#14161b",
    surface="#1c1f26",
    panel="#262a33",
    primary="#82aaff",
    secondary="#6fd3dc",
    accent="#c8a2ff",
    success="#86d992",
    warning="#ffb65c",
    error="#ff8890",
    variables={
        "text": "#e4e6eb",
        "text-muted": "#a9afbb",
        "text-disabled": "#8b919e",
        "foreground-muted": "#a9afbb",
        "foreground-disabled": "#8b919e",
        "border": "#82aaff",
        "border-blurred": "#6f7787",
        "block-cursor-foreground": "#14161b",
        "block-cursor-background": "#82aaff",
        "block-cursor-blurred-foreground": "#e4e6eb",
        "block-cursor-blurred-background": "#3a4152",
        "input-cursor-foreground": "#14161b",
        "input-cursor-background": "#e4e6eb",
        "input-selection-foreground": "#ffffff",
        "input-selection-background": "#2f5fb3",
        "screen-selection-foreground": "#ffffff",
        "screen-selection-background": "#2f5fb3",
        "footer-key-foreground": "#c8a2ff",
        "markdown-h6-color": "#a9afbb",
    },
)

LIGHT = Theme(
    name="macspec-light",
    dark=False,
    foreground="#1c1f25",
    background="#fcfcfa",
    surface="#f2f2ee",
    panel="#e7e7e2",
    primary="#1c5bb8",
    secondary="#00646f",
    accent="#6a1fa8",
    success="#1c6a2d",
    warning="#6e3b00",
    error="#a51626",
    variables={
        "text": "#1c1f25",
        "text-muted": "#51565f",
        "text-disabled": "#575c66",
        "foreground-muted": "#51565f",
        "foreground-disabled": "#575c66",
        "border": "#1c5bb8",
        "border-blurred": "#767a82",
        "block-cursor-foreground": "#ffffff",
        "block-cursor-background": "#1c5bb8",
        "block-cursor-blurred-foreground": "#1c1f25",
        "block-cursor-blurred-background": "#cfd8e8",
        "input-cursor-foreground": "#fcfcfa",
        "input-cursor-background": "#1c1f25",
        "input-selection-foreground": "#101216",
        "input-selection-background": "#b4d0ff",
        "screen-selection-foreground": "#101216",
        "screen-selection-background": "#b4d0ff",
        "footer-key-foreground": "#6a1fa8",
        "markdown-h6-color": "#51565f",
    },
)

OWN = (DARK, LIGHT)

DARK_16 = Theme(
    name="dark-16",
    ansi=True,
    dark=True,
    primary="ansi_cyan",
    secondary="ansi_bright_cyan",
    accent="ansi_bright_magenta",
    success="ansi_bright_green",
    warning="ansi_bright_yellow",
    error="ansi_bright_red",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    variables={
        "ansi-background": "ansi_default",
        "ansi-foreground": "ansi_default",
        "text-muted": "ansi_default",
        "text-disabled": "ansi_default",
        "foreground-muted": "ansi_default",
        "border": "ansi_cyan",
        "border-blurred": "ansi_default",
        "block-cursor-foreground": "ansi_black",
        "block-cursor-background": "ansi_cyan",
        "block-cursor-blurred-foreground": "ansi_default",
        "block-cursor-blurred-background": "ansi_default",
        "block-cursor-blurred-text-style": "underline",
        "input-cursor-foreground": "ansi_default",
        "input-cursor-background": "ansi_default",
        "input-selection-foreground": "ansi_black",
        "input-selection-background": "ansi_cyan",
        "screen-selection-foreground": "ansi_black",
        "screen-selection-background": "ansi_cyan",
        "footer-key-foreground": "ansi_bright_magenta",
        "scrollbar": "ansi_white",
        "scrollbar-hover": "ansi_white",
        "scrollbar-background": "ansi_default",
    },
)

LIGHT_16 = Theme(
    name="light-16",
    ansi=True,
    dark=False,
    primary="ansi_blue",
    secondary="ansi_blue",
    accent="ansi_magenta",
    success="ansi_blue",
    warning="ansi_red",
    error="ansi_red",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    variables={
        "ansi-background": "ansi_default",
        "ansi-foreground": "ansi_default",
        "text-muted": "ansi_default",
        "text-disabled": "ansi_default",
        "foreground-muted": "ansi_default",
        "border": "ansi_blue",
        "border-blurred": "ansi_default",
        "block-cursor-foreground": "ansi_bright_white",
        "block-cursor-background": "ansi_blue",
        "block-cursor-blurred-foreground": "ansi_default",
        "block-cursor-blurred-background": "ansi_default",
        "block-cursor-blurred-text-style": "underline",
        "input-cursor-foreground": "ansi_default",
        "input-cursor-background": "ansi_default",
        "input-selection-foreground": "ansi_bright_white",
        "input-selection-background": "ansi_blue",
        "screen-selection-foreground": "ansi_bright_white",
        "screen-selection-background": "ansi_blue",
        "footer-key-foreground": "ansi_magenta",
        "scrollbar": "ansi_blue",
        "scrollbar-hover": "ansi_blue",
        "scrollbar-background": "ansi_default",
    },
)

WITHOUT = Style.from_color(Color.default(), Color.default())


class Colourless(LineFilter):
    """Takes all colours away; what had a background of its own is shown in reverse."""

    def apply(self, segments: list[Segment], background: object) -> list[Segment]:
        return [Segment(text, _colourless(style)) for text, style, _ in segments]


@lru_cache(1024)
def _colourless(style: Style | None) -> Style | None:
    if style is None:
        return None
    marked = style.bgcolor is not None and not style.bgcolor.is_default
    return style + WITHOUT + Style(reverse=bool(style.reverse) != marked)


def ansi_color(environ: Mapping[str, str]) -> bool | None:
    """The argument of that name for ``App``: without it, NO_COLOR would still paint in greys."""
    return True if "NO_COLOR" in environ else None


def register(app: App[Any]) -> None:
    """Give an app all themes, in the form that its terminal can show."""
    for theme in (*OWN, *BUILTIN_THEMES.values()):
        app.register_theme(_fitting(theme, app))
    if app.no_color:
        app._filters = [it for it in app._filters if not isinstance(it, NoColor)] + [Colourless()]


def names(app: App[Any]) -> Sequence[str]:
    """The themes to choose from, macspec's own first."""
    own = [theme.name for theme in OWN]
    return [*own, *sorted(name for name in app.available_themes if name not in own)]


def known(name: str, app: App[Any]) -> str:
    """``name``, or macspec's own dark theme where there is none of that name."""
    return name if name in app.available_themes else DARK.name


def _fitting(theme: Theme, app: App[Any]) -> Theme:
    many = theme.ansi or app.console.color_system in ("truecolor", "256")
    if many and not app.no_color:
        return theme
    return replace(DARK_16 if theme.dark else LIGHT_16, name=theme.name)
