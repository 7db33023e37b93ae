"""The rows around a turn's text, and notes between turns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from ..chat.turns import Turn
from .footer import BORDER, ending, figures, marks, model_name, speaker
from .rows import Row, broken, drawn, row
from .styles import Styles
from .tint import legend

if TYPE_CHECKING:
    from .turn import Look, TurnRows

SEPARATOR = " · "


def _row(text: Text, styles: Styles) -> Row:
    """A row that is ornament from end to end."""
    return row(drawn(text, styles.page(max(cell_len(text.plain), 1))), styles.base, len(text.plain))


def blank(styles: Styles) -> list[Row]:
    empty = row((), styles.base)
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
    return [_row(line, look.styles) for line in lines]


def note(text: str, look: Look) -> list[Row]:
    styles = look.styles
    made = [
        row(drawn(part, styles.page(look.width)), styles.base)
        for part, _ in broken(Text(text, styles["note"]), look.width)
    ]
    return [*made, *blank(styles)]


def head(rows: TurnRows, look: Look) -> list[Row]:
    """Who speaks, which sibling this is, and what the tints mean."""
    turn, styles = rows.turn, look.styles
    made = []
    if rows.border:
        line = f" {BORDER} "
        room = max(look.width - cell_len(line), 0)
        made += flowing(
            [Text("─" * (room // 2) + line + "─" * (room - room // 2), styles["mark"])],
            look,
            styles["mark"],
        )
        made += blank(styles)
        for each in made:
            each.bare = True
    name = Text(speaker(turn), styles["user" if turn.role == "user" else "model"])
    parts: list[Text] = [name]
    if turn.draft:
        parts.append(Text(f"draft {model_name(turn.draft)}", styles["dim"]))
    parts += (Text(mark, styles["mark"]) for mark in marks(turn))
    made += flowing(parts, look, styles["dim"])
    if rows.tinted:
        counted = rows.answer.authors.counts()
        if rows.open(look):
            counted += rows.thought.authors.counts()
        parts = [Text("source text", styles["dim"]), *legend(counted, styles)]
        made += flowing(parts, look, styles["dim"])
    return made


def fold(rows: TurnRows, look: Look) -> list[Row]:
    """The line that stands for reasoning, or above it."""
    words = len(rows.thought.text.split())
    sign = "▾" if rows.open(look) else "▸"
    return [_row(Text(f"{sign} reasoning, {words:,} words", look.styles["dim"]), look.styles)]


def foot(turn: Turn, look: Look) -> list[Row]:
    """How a reply ended, its numbers, and the space to the next turn."""
    styles = look.styles
    made = []
    if (end := ending(turn)) is not None:
        made += flowing([Text(end, styles["mark"])], look, styles["mark"])
    if turn.stats is not None:
        parts = [Text(figure, styles["dim"]) for figure in figures(turn.stats)]
        made += flowing(parts, look, styles["dim"])
    return [*made, *blank(styles)]
