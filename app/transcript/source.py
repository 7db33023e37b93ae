"""The text of a turn, who wrote which part of it, and how its blocks are drawn."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

from rich.style import Style
from rich.text import Text

from macspec.choices import HEADS
from macspec.models.sidecars import label
from macspec.plaintext import one_line
from macspec.text import Span

from .markdown import Block, Markdown, clean, plain_blocks
from .rows import NOTHING, SPACE, TAB, Row, Styles, broken, drawn, row

NAMES = {
    "draft": "draft model",
    **{head: label(head) for head in HEADS},
    "ngram": "n-gram",
    "suffix": "past replies",
}
"""Names of drafters; others are shown by their own."""

Author = str | None
UNKNOWN = "?"


def author_name(author: Author) -> str:
    return "the target's own" if author is None else NAMES.get(author, one_line(author))


def author_style(author: Author, styles: Styles) -> Style:
    if author is None:
        return Style.null()
    if author == UNKNOWN:
        return styles["tint-unknown"]
    return styles.parts.get(f"tint-{author}", styles["tint-other"])


@dataclass
class Authors:
    """Who wrote which characters of a growing, cleaned text."""

    _spans: list[tuple[int, Author]] = field(default_factory=list)
    """Where each ends, and who wrote it."""

    def __len__(self) -> int:
        """Characters so far."""
        return self._spans[-1][0] if self._spans else 0

    def take(self, text: str, spans: Iterable[Span]) -> str:
        """Adds a text and its spans, and returns the text cleaned. Where there is no span, the
        author is unknown."""
        at, shown = 0, []
        for length, who in (*spans, (len(text), UNKNOWN)):
            part = clean(text[at : at + max(length, 0)])
            at += max(length, 0)
            if part:
                shown.append(part)
                self._add(len(part), who)
        return "".join(shown)

    def _add(self, length: int, who: Author) -> None:
        end = len(self) + length
        if self._spans and self._spans[-1][1] == who:
            self._spans.pop()
        self._spans.append((end, who))

    def within(self, start: int, stop: int) -> Iterator[tuple[int, int, Author]]:
        """The spans within ``[start, stop)``, relative to ``start``."""
        at = start
        for end, who in self._spans[bisect_right(self._spans, start, key=itemgetter(0)) :]:
            if at >= stop:
                break
            yield at - start, min(end, stop) - start, who
            at = end

    def counts(self) -> Counter[Author]:
        counted: Counter[Author] = Counter()
        for first, last, who in self.within(0, len(self)):
            counted[who] += last - first
        return counted


def tinted(text: Text, authors: Authors, start: int, styles: Styles) -> None:
    """Styles ``text``, which begins at ``start`` of the source, by its authors."""
    for first, last, who in authors.within(start, start + len(text)):
        text.stylize(author_style(who, styles), first, last)


def legend(counted: Counter[Author], styles: Styles) -> list[Text]:
    """What the tints mean and the share of each author, one part per author."""
    whole = counted.total()
    drafters = sorted(
        (who for who in counted if who not in (None, UNKNOWN)), key=lambda who: -counted[who]
    )
    known: list[Author] = [*drafters, None] if whole > counted[UNKNOWN] else []
    parts = [
        Text.assemble((author_name(who), author_style(who, styles)), f" {counted[who] / whole:.0%}")
        for who in known
    ]
    if counted[UNKNOWN]:
        rest = "the rest: unknown" if known else "author unknown"
        parts.append(Text(rest, styles["tint-unknown"]))
    return parts


class Source:
    """The answer or the reasoning as it grows, cleaned so that it can be drawn."""

    def __init__(self, text: str = "", spans: Iterable[Span] = (), *, markdown: bool) -> None:
        self.markdown = markdown
        self.authors = Authors()
        self.text = ""
        self._parsed = Markdown()
        self.take([(text, spans)])

    @property
    def content(self) -> tuple[str, Authors]:
        return self.text, self.authors

    def take(self, pieces: Iterable[tuple[str, Iterable[Span]]]) -> None:
        self.text += "".join([self.authors.take(text, spans) for text, spans in pieces])

    def blocks(self, plain: bool) -> list[Block]:
        """Its blocks as Markdown, or as plain text."""
        if plain or not self.markdown:
            return plain_blocks(self.text)
        if rest := self.text[len(self._parsed.text) :]:
            self._parsed.take(rest)
        return self._parsed.blocks

    def code_before(self, block: Block) -> int:
        """Blocks of code that begin before a block of the Markdown."""
        return sum(each.codes for each in self.blocks(False) if each.start < block.start)


def guess(text: str, block: Block, width: int) -> int:
    """An estimate of the rows a block takes."""
    newlines = text.count("\n", block.start, block.stop)
    return max(newlines + (block.stop - block.start) // max(width, 1), 1) + block.gap


def draw_block(
    source: Source, block: Block, styles: Styles, width: int, *, tint: bool
) -> list[Row]:
    rows = _block(source, block, styles, width, tint=tint)
    last = source.text[block.stop - 1 : block.stop]
    if rows and block.stop < len(source.text) and last != "\n":
        rows[-1].join = SPACE if last == " " else NOTHING
    return [row((), styles.base), *rows] if block.gap else rows


def _block(source: Source, block: Block, styles: Styles, width: int, *, tint: bool) -> list[Row]:
    if block.kind == "plain":
        return _plain(source, block, styles, width, tint=tint)
    from .prose import code_rows, prose  # Takes long to import: not before it is needed.

    text = block.source(source.text)
    number = source.code_before(block) + 1
    if block.kind == "code":
        return code_rows(text, block.info, number if block.first else None, styles, width)
    return prose(text, width, styles, block.number, number)


def _plain(source: Source, block: Block, styles: Styles, width: int, *, tint: bool) -> list[Row]:
    text = Text(source.text[block.start : block.stop])
    if tint:
        tinted(text, source.authors, block.start, styles)
    text.expand_tabs(TAB)
    lines = text.split("\n", allow_blank=True)
    if text.plain.endswith("\n"):
        lines.pop()
    page = styles.page(width)
    return [
        row(drawn(part, page), styles.base, 0, join)
        for line in lines
        for part, join in broken(line, width)
    ]
