"""Colours: two themes of macspec's own beside Textual's, each in the form that a terminal can show.

With 16 colours every theme becomes one of two that are made of them; with NO_COLOR there are
none, and what is chosen stands out in reverse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.filter import LineFilter, NoColor
from textual.theme import BUILTIN_THEMES, Theme


def _theme(
    name: str,
    *,
    muted: str,
    disabled: str,
    blurred: str,
    cursor: tuple[str, str],
    unfocused: tuple[str, str],
    selection: tuple[str, str],
    more: Mapping[str, str] = MappingProxyType({}),
    **colours: Any,
) -> Theme:
    """A theme whose variables follow from a few colours.

    Args:
        blurred: borders of what does not have the focus.
        cursor: foreground and background of the chosen row; the background is the border too.
        unfocused: the same in a list that does not have the focus.
        selection: foreground and background of selected text.
        more: variables beside these.
        colours: as ``Theme`` takes them.
    """
    text, background = colours["foreground"], colours["background"]
    variables = {
        "text": text,
        "text-muted": muted,
        "text-disabled": disabled,
        "foreground-muted": muted,
        "foreground-disabled": disabled,
        "border": colours["primary"],
        "border-blurred": blurred,
        "block-cursor-foreground": cursor[0],
        "block-cursor-background": cursor[1],
        "block-cursor-blurred-foreground": unfocused[0],
        "block-cursor-blurred-background": unfocused[1],
        "input-cursor-foreground": background,
        "input-cursor-background": text,
        "input-selection-foreground": selection[0],
        "input-selection-background": selection[1],
        "screen-selection-foreground": selection[0],
        "screen-selection-background": selection[1],
        "footer-key-foreground": colours["accent"],
        "markdown-h6-color": muted,
    }
    return Theme(name, variables={**variables, **more}, **colours)


def _theme_16(name: str, *, bar: str, bar_hover: str, **options: Any) -> Theme:
    """A theme made of the standard 16 colours, its background too: the terminal's own may differ.

    Args:
        bar, bar_hover: colours of scroll bars.
    """
    background, muted = options["background"], options["muted"]
    plain = dict.fromkeys(("surface", "panel", "boost"), background)
    named = ("primary", "secondary", "accent", "success", "warning", "error")
    more = {
        **{f"text-{colour}": options[colour] for colour in named},
        "block-hover-background": options["unfocused"][1],
        "scrollbar": bar,
        "scrollbar-hover": bar_hover,
        "scrollbar-active": bar_hover,
        "scrollbar-background": background,
    }
    return _theme(name, disabled=muted, blurred=muted, more=more, **plain, **options)


DARK = _theme(
    "macspec-dark",
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
    muted="#a9afbb",
    disabled="#8b919e",
    blurred="#6f7787",
    cursor=("#14161b", "#82aaff"),
    unfocused=("#e4e6eb", "#3a4152"),
    selection=("#ffffff", "#2f5fb3"),
)

LIGHT = _theme(
    "macspec-light",
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
    muted="#51565f",
    disabled="#575c66",
    blurred="#767a82",
    cursor=("#ffffff", "#1c5bb8"),
    unfocused=("#1c1f25", "#cfd8e8"),
    selection=("#101216", "#b4d0ff"),
)

OWN = (DARK, LIGHT)

DARK_16 = _theme_16(
    "dark-16",
    dark=True,
    foreground="#ffffff",
    background="#000000",
    primary="#00aaaa",
    secondary="#55ffff",
    accent="#ff55ff",
    success="#55ff55",
    warning="#ffff55",
    error="#ff5555",
    muted="#aaaaaa",
    cursor=("#000000", "#00aaaa"),
    unfocused=("#ffffff", "#0000aa"),
    selection=("#ffffff", "#0000aa"),
    bar="#aaaaaa",
    bar_hover="#ffffff",
)

LIGHT_16 = _theme_16(
    "light-16",
    dark=False,
    foreground="#000000",
    background="#ffffff",
    primary="#0000aa",
    secondary="#0000aa",
    accent="#0000aa",
    success="#0000aa",
    warning="#aa0000",
    error="#aa0000",
    muted="#000000",
    cursor=("#ffffff", "#0000aa"),
    unfocused=("#000000", "#55ffff"),
    selection=("#ffffff", "#0000aa"),
    bar="#0000aa",
    bar_hover="#0000aa",
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
