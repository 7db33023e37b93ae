"""What drawing, copying and line mode share about Markdown; no Textual."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from macspec.plaintext import SURROGATES, neutral

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

LEFT_OUT = ["html_block", "html_inline", "reference", "lheading", "image"]
"""Rules of CommonMark that hide text, or that make a heading of a paragraph in mid-stream."""


@cache
def parser() -> MarkdownIt:
    """CommonMark with tables, without what is left out."""
    from markdown_it import MarkdownIt

    return MarkdownIt().enable("strikethrough").enable("table").disable(LEFT_OUT)


def clean(text: str) -> str:
    """Untrusted text as it may be drawn. Its length is that of the text's parts, cleaned alone."""
    return neutral(text).translate(SURROGATES)


def language_of(info: str) -> str:
    """The language that a fence names, in small letters; empty if it names none."""
    words = info.replace("{", " ").replace("}", " ").replace(",", " ").split()
    return words[0].lstrip(".").lower()[:24] if words else ""


def moved(text: str, columns: int) -> str:
    """Lines without so many of their leading blanks, as far as they have them."""
    if not columns:
        return text
    lines = text.split("\n")
    return "\n".join(line[min(columns, len(line) - len(line.lstrip(" "))) :] for line in lines)
