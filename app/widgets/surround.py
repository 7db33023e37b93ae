"""The rows around a turn's text, and notes between turns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from ..chat.turns import Turn
from .footer import BORDER, ending, figures, marks, model_name, speaker
from .inks import Inks
from .rows import Row, broken, drawn, row
from .tint import legend

if TYPE_CHECKING:
    from .turn import Look, TurnRows

SEPARATOR = " · "


def _row(text: Text, inks: Inks) -> Row:
    """A row that is ornament from end to end."""
    return row(drawn(text, inks.page(max(cell_len(text.plain), 1))), inks.base, len(text.plain))


def blank(inks: Inks) -> list[Row]:
    empty = row((), inks.base)
    empty.bare = True
    return [empty]


def flowing(parts: Iterable[Text], look: Look, style: Style) -> list[Row]:
    """Parts with dots between, in as many rows as they need; a part stays whole if it can."""
    lines: list[Text] = []
    for part in parts:
        for piece, _ in broken(part, look.width):
            room = look.width - cell_len(lines[-1].plain) - len(SEPARATOR) if lines else 0
            if lines and cell_len(piece.plain) <= room:
                lines[-1] = Text.assemble(lines[-1], (SEPARATOR, style), piece)
            else:
                lines.append(piece)
    return [_row(line, look.inks) for line in lines]


def note(text: str, look: Look) -> list[Row]:
    inks = look.inks
    made = [
        row(drawn(part, inks.page(look.width)), inks.base)
        for part, _ in broken(Text(text, inks["note"]), look.width)
    ]
    return [*made, *blank(inks)]


def head(rows: TurnRows, look: Look) -> list[Row]:
    """Who speaks, which sibling this is, and what the tints mean."""
    turn, inks = rows.turn, look.inks
    made = []
    if rows.border:
        line = f" {BORDER} "
        room = max(look.width - cell_len(line), 0)
        made += flowing(
            [Text("─" * (room // 2) + line + "─" * (room - room // 2), inks["mark"])],
            look,
            inks["mark"],
        )
        made += blank(inks)
        for each in made:
            each.bare = True
    name = Text(speaker(turn), inks["user" if turn.role == "user" else "model"])
    parts: list[Text] = [name]
    if turn.draft:
        parts.append(Text(f"draft {model_name(turn.draft)}", inks["dim"]))
    parts += (Text(mark, inks["mark"]) for mark in marks(turn))
    made += flowing(parts, look, inks["dim"])
    if rows.tinted:
        counted = rows.answer.authors.counts()
        if rows.open(look):
            counted += rows.thought.authors.counts()
        parts = [Text("source text", inks["dim"]), *legend(counted, inks)]
        made += flowing(parts, look, inks["dim"])
    return made


def fold(rows: TurnRows, look: Look) -> list[Row]:
    """The line that stands for reasoning, or above it."""
    words = len(rows.thought.text.split())
    sign = "▾" if rows.open(look) else "▸"
    return [_row(Text(f"{sign} reasoning, {words:,} words", look.inks["dim"]), look.inks)]


def foot(turn: Turn, look: Look) -> list[Row]:
    """How a reply ended, its numbers, and the space to the next turn."""
    inks = look.inks
    made = []
    if (end := ending(turn)) is not None:
        made += flowing([Text(end, inks["mark"])], look, inks["mark"])
    if turn.stats is not None:
        parts = [Text(figure, inks["dim"]) for figure in figures(turn.stats)]
        made += flowing(parts, look, inks["dim"])
    return [*made, *blank(inks)]
