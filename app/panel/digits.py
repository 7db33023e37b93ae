"""A number three lines high, in Textual's digits."""

from __future__ import annotations

from textual.renderables.digits import DIGITS, DIGITS3X3_BOLD

from .figures import DASH

HIGH = 3
POINT = (" ", " ", "▪")


def big(text: str) -> tuple[str, str, str] | None:
    """Three lines for a number; None where there is a character that has no large form."""
    lines = ["", "", ""]
    for character in text.replace(DASH, "-"):
        if character == ".":
            glyph: tuple[str, ...] = POINT
        elif character in DIGITS:
            at = DIGITS.index(character) * HIGH
            glyph = tuple(line.ljust(3) for line in DIGITS3X3_BOLD[at : at + HIGH])
        else:
            return None
        lines = [line + part for line, part in zip(lines, glyph, strict=True)]
    return lines[0], lines[1], lines[2]
