"""The rows around a turn's text: who speaks, how a reply ended and its numbers; and notices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rich.cells import cell_len
from rich.text import Text

from ..chat.turns import Turn, TurnStats
from ..panel.draw import short_name
from .rows import Look, Row, Styles, broken, drawn, row
from .source import Author, Source, legend

REASONS = {
    "length": "Stopped: length limit",
    "context": "Stopped: context full",
}


def speaker(turn: Turn) -> str:
    if turn.role == "user":
        return "You"
    if turn.role == "raw":
        return "Continued text"
    return short_name(turn.model or "macspec")


def marks(turn: Turn) -> list[str]:
    found = []
    if turn.siblings > 1:
        found.append(f"‹ {turn.sibling}/{turn.siblings} ›")
    if turn.dropped:
        found.append("out of context")
    return found


def ending(turn: Turn) -> str | None:
    if turn.state == "stopped":
        return "■ Stopped"
    if turn.state == "cut off":
        return "✗ Interrupted"
    if turn.state == "complete" and turn.reason in REASONS:
        return f"■ {REASONS[turn.reason]}"
    return None


def figures(stats: TurnStats) -> list[str]:
    """The numbers under a reply, as far as they are known, the most important first."""
    tokens = f"{stats.tokens:,} token" + "s" * (stats.tokens != 1)
    if stats.parts > 1:
        tokens += f" in {stats.parts} parts" if stats.whole else " in the last part"
    found = {
        "{:.1f} tok/s": stats.tokens_per_s,
        "{:.0%} accepted": stats.acceptance,
        "first token {:.2f} s": stats.ttft_s,
        "{:.2f} J/token": stats.joules_per_token,
        "{:.2f} tokens/pass": stats.tokens_per_pass,
    }
    return [tokens, *(form.format(value) for form, value in found.items() if value is not None)]


SEPARATOR = " · "


def _row(text: Text, look: Look) -> Row:
    """A row that is not part of a copy."""
    return row(drawn(text, look.styles.page(look.width)), look.styles.base, len(text.plain))


def blank(styles: Styles) -> list[Row]:
    empty = row((), styles.base)
    empty.bare = True
    return [empty]


def flowing(parts: Iterable[Text], look: Look) -> list[Row]:
    """Parts separated by dots, on as many rows as needed; a part is only broken if it must be."""
    lines: list[Text] = []
    for part in parts:
        for piece, _ in broken(part, look.width):
            room = look.width - cell_len(lines[-1].plain) - len(SEPARATOR) if lines else 0
            if lines and cell_len(piece.plain) <= room:
                lines[-1] = Text.assemble(lines[-1], (SEPARATOR, look.styles["dim"]), piece)
            else:
                lines.append(piece)
    return [_row(line, look) for line in lines]


def note(text: str, look: Look) -> list[Row]:
    styles = look.styles
    made = [
        row(drawn(part, styles.page(look.width)), styles.base)
        for part, _ in broken(Text(text, styles["note"]), look.width)
    ]
    return [*made, *blank(styles)]


def border(look: Look) -> list[Row]:
    """Where the part of the conversation begins that the model still sees."""
    line = " context full: the model no longer sees what is above "
    room = max(look.width - cell_len(line), 0)
    ruled = Text("─" * (room // 2) + line + "─" * (room - room // 2), look.styles["mark"])
    made = [*flowing([ruled], look), *blank(look.styles)]
    for each in made:
        each.bare = True
    return made


def head(turn: Turn, look: Look, written: Counter[Author] | None) -> list[Row]:
    """Who speaks, which sibling this is, and what the tints mean, if its authors are tinted."""
    styles = look.styles
    parts = [Text(speaker(turn), styles["user" if turn.role == "user" else "model"])]
    if turn.draft:
        parts.append(Text(f"draft {short_name(turn.draft)}", styles["dim"]))
    parts += (Text(mark, styles["mark"]) for mark in marks(turn))
    made = flowing(parts, look)
    if written is not None:
        made += flowing([Text("source text", styles["dim"]), *legend(written, styles)], look)
    return made


def fold(thought: Source, unfolded: bool, look: Look) -> list[Row]:
    sign, words = "▾" if unfolded else "▸", len(thought.text.split())
    return [_row(Text(f"{sign} reasoning, {words:,} words", look.styles["dim"]), look)]


def foot(turn: Turn, look: Look) -> list[Row]:
    """How a reply ended and its numbers, as many as a row holds; and a blank row."""
    styles = look.styles
    parts = []
    if (end := ending(turn)) is not None:
        parts.append(Text(end, styles["mark"]))
    if turn.stats is not None:
        parts += (Text(each, styles["dim"]) for each in figures(turn.stats))
    return [*flowing(parts, look)[:1], *blank(styles)]
