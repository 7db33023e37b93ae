"""Rows of drawn text: their styles, and how text is wrapped into them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rich._wrap import divide_line
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from rich.theme import Theme
from textual.strip import Strip
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
    "tint-mtp": "color: $text-accent; background: $accent-muted; text-style: italic;",
    "tint-eagle": "color: $text-accent; background: $accent-muted; text-style: bold italic;",
    "tint-dflash": "color: $text-accent; background: $accent-muted; text-style: dim italic;",
    "tint-dspark": "color: $text-accent; background: $accent-muted; text-style: dim underline;",
    "tint-ngram": "color: $text-warning; background: $warning-muted; text-style: bold underline;",
    "tint-suffix": "color: $text-primary; background: $primary-muted; text-style: bold;",
    "tint-other": "color: $text-error; background: $error-muted; text-style: italic underline;",
    "tint-unknown": "color: $text-muted;",
}
"""Everything that has a style of its own. Neighbours differ even without colour."""

CLASSES = {f"transcript--{part}" for part in PARTS}

CSS = "\n".join(f"Transcript > .transcript--{part} {{ {style} }}" for part, style in PARTS.items())


def part_style(widget: Widget, part: str) -> Style:
    """The style of a part; what its rule leaves open comes from what is below it.

    Where the terminal chooses the colours, backgrounds are left out, since their contrast is
    unknown, and muted text is dim.
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
    """The style of each part, and the widget's own beneath them."""

    base: Style
    parts: dict[str, Style]
    pages: dict[int, Page] = field(default_factory=dict, compare=False)

    def __getitem__(self, part: str) -> Style:
        return self.parts[part]

    @cached_property
    def theme(self) -> Theme:
        """The styles by the names that Rich's Markdown uses."""
        heading = self["heading"]
        return Theme(
            {
                **{f"markdown.h{level}": heading for level in range(2, 7)},
                "markdown.h1": heading + Style(underline=True),
                "markdown.strong": self["strong"],
                "markdown.em": self["em"],
                "markdown.s": self["struck"],
                "markdown.code": self["inline"],
                "markdown.a": self["link"],
                "markdown.block_quote": self["quote"],
                "markdown.hr": self["dim"],
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
        """For turns outside the model's context."""
        return Styles(self.base + Style(dim=True), self.parts)

    def page(self, width: int) -> Page:
        if width not in self.pages:
            self.pages[width] = Page(self, width)
        return self.pages[width]


@dataclass(frozen=True, slots=True)
class Look:
    """What drawing a turn depends on besides the turn."""

    styles: Styles
    width: int
    """Columns of its text."""
    tint: bool = False
    reasoning: bool = False
    """Reasoning stays open once the answer has begun."""


class Page(Console):
    """A console of one width that draws segments for us and writes nothing."""

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


NEW_LINE, SPACE, NOTHING = "\n", " ", ""

JOINS = {join: Style.from_meta({"join": join}) for join in (SPACE, NOTHING)}
"""Styles for the last character of a wrapped row: what a copy puts between it and the next."""

ORNAMENT = "ornament"

NO_TEXT = Style.from_meta({ORNAMENT: ""})
"""Style for a row that is not part of a copy."""

TAB = 4


@dataclass(slots=True, eq=False)
class Row:
    strip: Strip
    lead: int = 0
    """Leading characters that are ornament, not text."""
    join: str = NEW_LINE
    """What a copy puts between this row and the next."""

    bare: bool = False
    """Without a mark in the gutter."""
    painted: tuple[tuple[int, int, tuple[str, str]], Strip] | None = None
    """Where it was last drawn, at what width, with what mark beside it, and the result."""

    @property
    def ornament(self) -> bool:
        """Whether none of it is part of a copy."""
        return 0 < len(self.strip.text) <= self.lead


def broken(text: Text, width: int) -> Iterator[tuple[Text, str]]:
    """A line wrapped between words, or inside words longer than a row: each row, and what joins
    it to the next one."""
    offsets = divide_line(text.plain, max(width, 1), fold=True)
    *parts, last = text.divide(offsets)
    for part in parts:
        spaced = part.plain.endswith(" ")
        part.rstrip()
        yield part, SPACE if spaced else NOTHING
    if cell_len(last.plain) > width:
        last.rstrip()
    yield last, NEW_LINE


def drawn(text: Text, console: Console) -> list[Segment]:
    """A line as segments, its own style included."""
    if not text.spans:
        return [Segment(text.plain, console.get_style(text.style, default=Style.null()))]
    return list(text.render(console))


def row(segments: Iterable[Segment], base: Style, lead: int = 0, join: str = NEW_LINE) -> Row:
    return Row(Strip(list(Segment.apply_style(segments, base))), lead, join)


def rows_of(lines: Sequence[list[Segment]], base: Style) -> list[Row]:
    """Rows from lines drawn by Rich; the meta of their last segment says how they join."""
    made = []
    for line in lines:
        facts: dict[str, str] = {}
        for segment in line:
            if segment.style is not None and segment.style._meta is not None:
                facts |= segment.style.meta
        lead = sum(len(segment.text) for segment in line) if ORNAMENT in facts else 0
        made.append(row(line, base, lead, facts.get("join", NEW_LINE)))
    return made
