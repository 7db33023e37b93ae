"""Code as coloured lines."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from rich.style import Style
from rich.text import Text

from .markdown import language_of
from .styles import Styles

LONGEST = 1_000
"""Characters of a line that is still coloured: some lexers take long over long lines."""

KINDS = (
    ("Comment", "comment"),
    ("Keyword", "keyword"),
    ("Operator.Word", "keyword"),
    ("Literal.String", "string"),
    ("Literal.Number", "number"),
    ("Name.Function", "name"),
    ("Name.Class", "name"),
    ("Name.Decorator", "name"),
    ("Name.Tag", "keyword"),
    ("Name.Attribute", "name"),
    ("Name.Builtin", "name"),
    ("Generic.Deleted", "wrong"),
    ("Generic.Inserted", "string"),
    ("Generic.Heading", "keyword"),
    ("Generic.Subheading", "keyword"),
)
"""Kinds of token, and the style of each."""


@lru_cache(64)
def lexer(language: str) -> Any:
    """Pygments' lexer of a language, or None where it knows none by that name."""
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@cache
def style_name(kind: Any) -> str | None:
    """The style of a token of Pygments."""
    name = str(kind).removeprefix("Token.")
    return next((style for prefix, style in KINDS if name.startswith(prefix)), None)


def code_label(language: str, number: int) -> str:
    """What stands above a block of code."""
    return f"{language or 'code'} · {number}"


def coloured(source: str, language: str, styles: Styles) -> list[Text]:
    """The lines of some code, without their newlines."""
    text = Text(source, end="", no_wrap=True)
    known = lexer(language_of(language)) if language else None
    if known is not None and all(len(line) <= LONGEST for line in source.split("\n")):
        parts: dict[str, Style] = styles.parts
        for at, kind, value in known.get_tokens_unprocessed(source):
            if (name := style_name(kind)) is not None:
                text.stylize(parts[name], at, at + len(value))
    text.expand_tabs(4)
    return list(text.split("\n", allow_blank=True))
