"""The transcript's styles, from the theme that is in use."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from functools import cached_property

from rich.console import Console
from rich.style import Style
from rich.theme import Theme
from textual.widget import Widget

PARTS: dict[str, str] = {
    "user": "color: $text-primary; text-style: bold;",
    "model": "color: $text-secondary; text-style: bold;",
    "dim": "color: $text-muted;",
    "mark": "color: $text-warning;",
    "note": "color: $text-muted; text-style: italic;",
    "chosen": "color: $primary; text-style: bold;",
    "reasoning": "color: $text-muted;",
    "heading": "color: $text-primary; text-style: bold;",
    "strong": "text-style: bold;",
    "em": "text-style: italic;",
    "struck": "text-style: strike;",
    "link": "color: $text-accent; text-style: underline;",
    "quote": "color: $text-muted;",
    "bullet": "color: $text-accent;",
    "inline": "color: $text-warning; background: $foreground 7%;",
    "block": "background: $foreground 7%;",
    "label": "color: $text-muted; background: $foreground 7%;",
    "keyword": "color: $text-primary; text-style: bold;",
    "string": "color: $text-success;",
    "comment": "color: $text-muted; text-style: italic;",
    "number": "color: $text-warning;",
    "name": "color: $text-accent;",
    "wrong": "color: $text-error;",
    "tint-draft": "color: $text-success; background: $success-muted; text-style: underline;",
    "tint-ngram": "color: $text-warning; background: $warning-muted; text-style: bold underline;",
    "tint-suffix": "color: $text-primary; background: $primary-muted; text-style: bold;",
    "tint-other": "color: $text-error; background: $error-muted; text-style: italic underline;",
    "tint-unknown": "color: $text-muted;",
}
"""What is drawn, and how. Every part differs from its neighbours without colour too."""

CLASSES = {f"transcript--{part}" for part in PARTS}

CSS = "\n".join(f"Transcript > .transcript--{part} {{ {style} }}" for part, style in PARTS.items())


def part_style(widget: Widget, part: str) -> Style:
    """The style of a part; what its rule does not name is left to what lies under it.

    Where the terminal chooses the colours, grounds are left out: nobody knows what stands out
    from them. What would be muted is dim.
    """
    name = f"transcript--{part}"
    rules, whole = widget.get_component_styles(name), widget.get_component_rich_style(name)
    style = rules.text_style
    if rules.has_rule("color") and whole.color is not None:
        style += Style(dim=True) if whole.color.is_default else Style(color=whole.color)
    ground = whole.bgcolor
    if rules.has_rule("background") and ground is not None and ground.triplet is not None:
        style += Style(bgcolor=ground)
    return style


@dataclass(frozen=True)
class Styles:
    """A style for each part, and the widget's own under all of them."""

    base: Style
    parts: dict[str, Style]
    pages: dict[int, Page] = field(default_factory=dict, compare=False)

    def __getitem__(self, part: str) -> Style:
        return self.parts[part]

    @cached_property
    def theme(self) -> Theme:
        """Names that Rich's Markdown asks for."""
        heading = self["heading"]
        headings = {f"markdown.h{level}": heading for level in range(2, 7)}
        return Theme(
            {
                **headings,
                "markdown.h1": heading + Style(underline=True),
                "markdown.paragraph": Style(),
                "markdown.strong": self["strong"],
                "markdown.em": self["em"],
                "markdown.s": self["struck"],
                "markdown.code": self["inline"],
                "markdown.a": self["link"],
                "markdown.block_quote": self["quote"],
                "markdown.hr": self["dim"],
                "markdown.item": Style(),
                "markdown.item.bullet": self["bullet"],
                "markdown.item.number": self["bullet"],
                "markdown.table.border": self["dim"],
                "markdown.table.header": self["strong"],
            }
        )

    @cached_property
    def dimmed(self) -> Styles:
        """For reasoning."""
        return Styles(self.base + self["reasoning"], self.parts)

    @cached_property
    def faded(self) -> Styles:
        """For turns that the model no longer sees."""
        return Styles(self.base + Style(dim=True), self.parts)

    def page(self, width: int) -> Page:
        if width not in self.pages:
            self.pages[width] = Page(self, width)
        return self.pages[width]


class Page(Console):
    """Where Rich draws segments of one width; nothing is written anywhere."""

    def __init__(self, styles: Styles, width: int) -> None:
        super().__init__(
            file=io.StringIO(),
            width=width,
            height=24,
            theme=styles.theme,
            force_terminal=True,
            color_system="truecolor",
            legacy_windows=False,
            markup=False,
            emoji=False,
            highlight=False,
            _environ={},
        )
        self.styles = styles
