"""One text of a turn, its authors and its blocks; and how a block is drawn."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from ..chat.turns import Span
from .code import code_label, coloured
from .markdown import Block, Markdown, Plain, code_in, language_of, moved
from .rows import NEW_LINE, NOTHING, SPACE, TAB, Row, broken, drawn, row
from .styles import Page, Styles
from .tint import Authors, tinted


class Source:
    """The answer or the reasoning, as it grows. It is clean: fit to be drawn."""

    def __init__(self, text: str = "", spans: Iterable[Span] = (), *, markdown: bool) -> None:
        self.markdown = markdown
        self.authors = Authors()
        self.text = ""
        self._blocks: Markdown | Plain | None = None
        self._code: dict[tuple[int, int], int] = {}
        """How many blocks of code begin in a block, by its place."""
        self.take([(text, spans)])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Source):
            return NotImplemented
        same = self.text == other.text and self.markdown == other.markdown
        return same and self.authors == other.authors

    def take(self, pieces: Iterable[tuple[str, Iterable[Span]]]) -> None:
        """More texts, each with its spans."""
        shown = "".join([self.authors.take(text, spans) for text, spans in pieces])
        self.text += shown
        if self._blocks is not None:
            self._blocks.take(shown)

    def blocks(self, plain: bool) -> list[Block]:
        """Those of the Markdown, or of the text as it stands."""
        kind = Plain if plain or not self.markdown else Markdown
        if type(self._blocks) is not kind:
            self._blocks = kind()
            self._blocks.take(self.text)
        return self._blocks.blocks

    def code_before(self, block: Block) -> int:
        """How many blocks of code begin before a block of the Markdown."""
        found = 0
        for each in self.blocks(False):
            if each.start >= block.start:
                break
            key = (each.start, each.stop)
            if key not in self._code:
                self._code[key] = len(code_in(self.text, each))
            found += self._code[key]
        return found


def guess(text: str, block: Block, width: int) -> int:
    """About how many rows a block takes."""
    newlines = text.count("\n", block.start, block.stop)
    return max(newlines + (block.stop - block.start) // max(width, 1), 1) + block.gap


def draw_block(
    source: Source, block: Block, styles: Styles, width: int, *, tint: bool
) -> list[Row]:
    """The rows of a block."""
    rows = _block(source, block, styles, width, tint=tint)
    last = source.text[block.stop - 1 : block.stop]
    if rows and block.stop < len(source.text) and last != "\n":
        rows[-1].join = SPACE if last == " " else NOTHING
    return [row((), styles.base), *rows] if block.gap else rows


def _block(source: Source, block: Block, styles: Styles, width: int, *, tint: bool) -> list[Row]:
    if block.kind == "plain":
        return _plain(source, block, styles, width, tint=tint)
    text = moved(source.text[block.start : block.stop], block.indent)
    if block.kind == "code":
        number = source.code_before(block) + 1 if block.first else None
        return _code(text, block.info, number, styles, width)
    first = source.code_before(block) + 1 if code_in(source.text, block) else 1
    if block.head is not None:
        text = source.text[slice(*block.head)] + text
    from .prose import prose

    return prose(text, width, styles, block.number, first)


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


def _code(text: str, info: str, number: int | None, styles: Styles, width: int) -> list[Row]:
    """Code on its own ground, a column from its edges; lines fold anywhere."""
    page, ground = styles.page(width), styles.base + styles["block"]
    language = language_of(info)
    rows = []
    if number is not None:
        label = Text(code_label(language, number), styles["label"])
        rows.append(_ground(label, page, ground, width))
        rows[-1].lead = width
    for line in coloured(text.removesuffix("\n"), language, styles):
        for part, join in _folded(line, width - 2):
            rows.append(_ground(part, page, ground, width, join))
    return rows


def _folded(line: Text, width: int) -> list[tuple[Text, str]]:
    """A line of code in rows of at most ``width`` columns."""
    offsets, used = [], 0
    for index, character in enumerate(line.plain):
        cells = cell_len(character)
        if used + cells > max(width, 1):
            offsets.append(index)
            used = 0
        used += cells
    parts = list(line.divide(offsets)) if offsets else [line]
    return [(part, NOTHING) for part in parts[:-1]] + [(parts[-1], NEW_LINE)]


def _ground(text: Text, page: Page, ground: Style, width: int, join: str = NEW_LINE) -> Row:
    room = max(width - 1 - cell_len(text.plain), 0)
    segments = [Segment(" "), *drawn(text, page), Segment(" " * room)]
    return row(segments, ground, 1, join)
