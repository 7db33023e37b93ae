"""Colours: two themes of macspec's own beside Textual's, each in the form that a terminal can show.

With 16 colours every theme becomes one of two that are made of them; with NO_COLOR there are
none, and what is chosen stands out in reverse.
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
    dark=True,
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#000000",
    boost="#000000",
    primary="#00aaaa",
    secondary="#55ffff",
    accent="#ff55ff",
    success="#55ff55",
    warning="#ffff55",
    error="#ff5555",
    variables={
        "text": "#ffffff",
        "text-muted": "#aaaaaa",
        "text-disabled": "#aaaaaa",
        "text-primary": "#00aaaa",
        "text-secondary": "#55ffff",
        "text-accent": "#ff55ff",
        "text-success": "#55ff55",
        "text-warning": "#ffff55",
        "text-error": "#ff5555",
        "foreground-muted": "#aaaaaa",
        "foreground-disabled": "#aaaaaa",
        "border": "#00aaaa",
        "border-blurred": "#aaaaaa",
        "block-cursor-foreground": "#000000",
        "block-cursor-background": "#00aaaa",
        "block-cursor-blurred-foreground": "#ffffff",
        "block-cursor-blurred-background": "#0000aa",
        "block-hover-background": "#0000aa",
        "input-cursor-foreground": "#000000",
        "input-cursor-background": "#ffffff",
        "input-selection-foreground": "#ffffff",
        "input-selection-background": "#0000aa",
        "screen-selection-foreground": "#ffffff",
        "screen-selection-background": "#0000aa",
        "footer-key-foreground": "#ff55ff",
        "markdown-h6-color": "#aaaaaa",
        "scrollbar": "#aaaaaa",
        "scrollbar-hover": "#ffffff",
        "scrollbar-active": "#ffffff",
        "scrollbar-background": "#000000",
    },
)
"""All of it from the standard 16, background too: the terminal's own may be a light one."""

LIGHT_16 = Theme(
    name="light-16",
    dark=False,
    foreground="#000000",
    background="#ffffff",
    surface="#ffffff",
    panel="#ffffff",
    boost="#ffffff",
    primary="#0000aa",
    secondary="#0000aa",
    accent="#0000aa",
    success="#0000aa",
    warning="#aa0000",
    error="#aa0000",
    variables={
        "text": "#000000",
        "text-muted": "#000000",
        "text-disabled": "#000000",
        "text-primary": "#0000aa",
        "text-secondary": "#0000aa",
        "text-accent": "#0000aa",
        "text-success": "#0000aa",
        "text-warning": "#aa0000",
        "text-error": "#aa0000",
        "foreground-muted": "#000000",
        "foreground-disabled": "#000000",
        "border": "#0000aa",
        "border-blurred": "#000000",
        "block-cursor-foreground": "#ffffff",
        "block-cursor-background": "#0000aa",
        "block-cursor-blurred-foreground": "#000000",
        "block-cursor-blurred-background": "#55ffff",
        "block-hover-background": "#55ffff",
        "input-cursor-foreground": "#ffffff",
        "input-cursor-background": "#000000",
        "input-selection-foreground": "#ffffff",
        "input-selection-background": "#0000aa",
        "screen-selection-foreground": "#ffffff",
        "screen-selection-background": "#0000aa",
        "footer-key-foreground": "#0000aa",
        "markdown-h6-color": "#000000",
        "scrollbar": "#0000aa",
        "scrollbar-hover": "#0000aa",
        "scrollbar-active": "#0000aa",
        "scrollbar-background": "#ffffff",
    },
)

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
"""Without colours: a background says no more than that something is chosen."""


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
    if app.no_color:
        return replace(PLAIN, name=theme.name, dark=theme.dark)
    if theme.ansi or app.console.color_system in ("truecolor", "256"):
        return theme
    return replace(DARK_16 if theme.dark else LIGHT_16, name=theme.name)
