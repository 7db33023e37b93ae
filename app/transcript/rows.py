"""Rows of drawn text, and text broken into rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich._wrap import divide_line
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

NEW_LINE, SPACE, NOTHING = "\n", " ", ""

JOINS = {join: Style.from_meta({"join": join}) for join in (SPACE, NOTHING)}
"""Styles of a row's last character, where the row was broken by us: what a copy puts there."""

ORNAMENT = "ornament"

NO_TEXT = Style.from_meta({ORNAMENT: ""})
"""Style of a row that is not part of a copy."""

TAB = 4


@dataclass(slots=True, eq=False)
class Row:
    """One row of the screen."""

    strip: Strip
    lead: int = 0
    """Characters at its start that are ornament and not text."""
    join: str = NEW_LINE
    """What stands between this row and the next one in a copy."""

    bare: bool = False
    """Nothing stands to its left."""
    painted: tuple[int, int, Strip, Strip] | None = None
    """Where it was last put on the screen, in what width, beside what, and how it looked."""

    @property
    def ornament(self) -> bool:
        """Nothing of it belongs into a copy."""
        return 0 < len(self.strip.text) <= self.lead

    @property
    def text(self) -> str:
        """What a copy of the row has."""
        return self.strip.text[self.lead :].rstrip()


def broken(text: Text, width: int) -> Iterator[tuple[Text, str]]:
    """A line in rows between words, or inside of words that are longer than a row.

    Yields:
        The row, and what joins it to the next one.
    """
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
    """A line's segments, its own style included."""
    if not text.spans:
        return [Segment(text.plain, console.get_style(text.style, default=Style.null()))]
    return list(text.render(console))


def row(segments: Iterable[Segment], base: Style, lead: int = 0, join: str = NEW_LINE) -> Row:
    """A row of segments over a base style."""
    return Row(Strip(list(Segment.apply_style(segments, base))), lead, join)


def rows_of(lines: Sequence[list[Segment]], base: Style) -> list[Row]:
    """Rows of lines that Rich has drawn; how they join stands in the last segment's meta."""
    made = []
    for line in lines:
        facts: dict[str, str] = {}
        for segment in line:
            if segment.style is not None and segment.style._meta is not None:
                facts |= segment.style.meta
        lead = sum(len(segment.text) for segment in line) if ORNAMENT in facts else 0
        made.append(row(line, base, lead, facts.get("join", NEW_LINE)))
    return made
