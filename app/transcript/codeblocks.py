"""The blocks of code in a text, numbered as the transcript numbers them."""

from __future__ import annotations

from dataclasses import dataclass

from .blocks import Block, Markdown
from .markup import clean, language_of, moved, parser


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A block of code."""

    language: str
    """As its fence names it; empty if it does not."""
    text: str
    """With a newline at its end, unless it is empty."""


def inner(source: str) -> list[CodeBlock]:
    """Blocks of code inside items and quotes, or without a fence."""
    if not any(sign in source for sign in ("```", "~~~", "    ", "\t")):
        return []
    return [
        CodeBlock(language_of(token.info), token.content)
        for token in parser().parse(source)
        if token.type in ("fence", "code_block")
    ]


def code_in(text: str, block: Block) -> list[CodeBlock]:
    """The code that begins in a block."""
    source = moved(text[block.start : block.stop], block.indent)
    if block.kind != "code":
        return inner(source)
    return [CodeBlock(language_of(block.info), source)] if block.first else []


def code_blocks(text: str) -> list[CodeBlock]:
    """Those of a turn's text, in order.

    The code is as the transcript shows it: controls are pictures, and what reorders text is gone.
    """
    markdown = Markdown()
    markdown.take(clean(text))
    found: list[CodeBlock] = []
    for block in markdown.blocks:
        if block.kind == "code" and not block.first:
            rest = moved(markdown.text[block.start : block.stop], block.indent)
            found[-1] = CodeBlock(found[-1].language, found[-1].text + rest)
        else:
            found += code_in(markdown.text, block)
    return found
