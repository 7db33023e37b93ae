"""Markdown and code as rows: Rich's renderer without anything that hides text or misleads.

HTML stays text, links show their full address, images are links, and link definitions stay
visible. A newline is a newline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any, ClassVar

from markdown_it.token import Token
from rich import box, markdown
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from .markdown import clean, language_of, parser
from .rows import JOINS, NEW_LINE, NO_TEXT, NOTHING, Page, Row, Styles, broken, drawn, row, rows_of

LONGEST = 1_000
"""Longest line that is still coloured, in characters: some lexers are slow on long lines."""

KINDS = {
    "comment": ("Comment",),
    "keyword": ("Keyword", "Operator.Word", "Name.Tag", "Generic.Heading", "Generic.Subheading"),
    "string": ("Literal.String", "Generic.Inserted"),
    "number": ("Literal.Number",),
    "name": ("Name.Function", "Name.Class", "Name.Decorator", "Name.Attribute", "Name.Builtin"),
    "wrong": ("Generic.Deleted",),
}
"""Styles, and the token types of Pygments that have them."""


@lru_cache(64)
def lexer(language: str) -> Any:
    """Pygments' lexer for a language; None if there is none of that name."""
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@cache
def style_name(kind: Any) -> str | None:
    name = str(kind).removeprefix("Token.")
    return next((style for style, kinds in KINDS.items() if name.startswith(kinds)), None)


def code_label(language: str, number: int) -> str:
    return f"{language or 'code'} · {number}"


def coloured(source: str, language: str, styles: Styles) -> list[Text]:
    """Code as coloured lines, without their newlines."""
    text = Text(source, end="", no_wrap=True)
    known = lexer(language_of(language)) if language else None
    if known is not None and all(len(line) <= LONGEST for line in source.split("\n")):
        for at, kind, value in known.get_tokens_unprocessed(source):
            if (name := style_name(kind)) is not None:
                text.stylize(styles[name], at, at + len(value))
    text.expand_tabs(4)
    return list(text.split("\n", allow_blank=True))


def code_rows(text: str, info: str, number: int | None, styles: Styles, width: int) -> list[Row]:
    """Code on a background of its own, a column from its edges; lines fold anywhere. What
    continues a block of code has no number."""
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
    *before, _ = accumulate(map(len, chop_cells(line.plain, max(width, 1)) or [""]))
    *parts, last = line.divide(before)
    return [*((part, NOTHING) for part in parts), (last, NEW_LINE)]


def _ground(text: Text, page: Page, ground: Style, width: int, join: str = NEW_LINE) -> Row:
    room = max(width - 1 - cell_len(text.plain), 0)
    segments = [Segment(" "), *drawn(text, page), Segment(" " * room)]
    return row(segments, ground, 1, join)


def _rows(text: Text, width: int) -> Iterator[Text]:
    for line in text.split("\n", allow_blank=True):
        for part, join in broken(line, width):
            if join != NEW_LINE and part:
                part.stylize(JOINS[join], len(part) - 1)
            part.no_wrap, part.overflow = True, "ignore"
            yield part


class Paragraph(markdown.Paragraph):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _rows(self.text, options.max_width)


class Heading(markdown.Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.stylize_before(console.get_style(self.style_name))
        yield from _rows(self.text, options.max_width)


class CodeBlock(markdown.CodeBlock):
    """Code inside an item or a quote, or code without a fence."""

    number = 0

    @classmethod
    def create(cls, markdown: markdown.Markdown, token: Token) -> CodeBlock:
        assert isinstance(markdown, Prose)
        block = cls(language_of(token.info), "")
        block.number, markdown.code = markdown.code, markdown.code + 1
        return block

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        assert isinstance(console, Page)
        label = Text(code_label(self.lexer_name, self.number), console.styles["dim"] + NO_TEXT)
        code = coloured(str(self.text).rstrip("\n"), self.lexer_name, console.styles)
        for line in (label, *code):
            yield from _rows(line, options.max_width)


class Rule(markdown.HorizontalRule):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("─" * options.max_width, console.get_style("markdown.hr"))


class Numbered(markdown.ListElement):
    """A list whose numbers stay in their column as it grows."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.list_type == "bullet_list_open":
            yield from super().__rich_console__(console, options)
            return
        first = 1 if self.list_start is None else self.list_start
        last = max(first + len(self.items), 10)
        for number, item in enumerate(self.items, first):
            yield from item.render_number(console, options, number, last)


class Grid(markdown.TableElement):
    """A table whose cells wrap; nothing is cut off."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, style="markdown.table.border"
        )
        for cell in self.header.row.cells if self.header and self.header.row else ():
            title = cell.content.copy()
            title.stylize("markdown.table.header")
            table.add_column(title, justify=cell.justify, overflow="fold")
        for line in self.body.rows if self.body is not None else ():
            table.add_row(*(cell.content for cell in line.cells))
        yield table


class Prose(markdown.Markdown):
    """Rich's Markdown over the tokens of our own parser."""

    elements: ClassVar[dict[str, type[markdown.MarkdownElement]]] = {
        **markdown.Markdown.elements,
        "paragraph_open": Paragraph,
        "heading_open": Heading,
        "fence": CodeBlock,
        "code_block": CodeBlock,
        "hr": Rule,
        "bullet_list_open": Numbered,
        "ordered_list_open": Numbered,
        "table_open": Grid,
    }
    inlines: ClassVar[set[str]] = {*markdown.Markdown.inlines, "a"}  # type: ignore[misc]

    def __init__(self, source: str, number: int | None = None, code: int = 1) -> None:
        super().__init__("", hyperlinks=False)
        self.code = code
        """The number of the next block of code."""
        self.parsed = list(_cleaned(parser().parse(source)))
        if number is not None and self.parsed and self.parsed[0].type == "ordered_list_open":
            self.parsed[0].attrs["start"] = number


def _cleaned(tokens: Iterable[Token]) -> Iterator[Token]:
    """Tokens with cleaned text (entities can encode anything) and with addresses as text."""
    address, label = "", ""
    for token in tokens:
        token.content, token.info = clean(token.content), clean(token.info)
        if token.children:
            token.children = list(_cleaned(token.children))
        if token.type == "softbreak":
            token.type = "hardbreak"
        if token.type == "link_open":
            address, label = clean(str(token.attrs.get("href", ""))), ""
            token.type = "a_open"
        elif token.type == "link_close":
            token.type = "a_close"
            yield token
            if address.removeprefix("mailto:") != label:
                yield Token("text", "", 0, content=f" ({address})")
            continue
        else:
            label += token.content
        yield token


def prose(
    source: str, width: int, styles: Styles, number: int | None = None, code: int = 1
) -> list[Row]:
    """Markdown in rows of at most ``width`` columns. It begins with the item of that number, and
    ``code`` is the number of its first block of code."""
    console = styles.page(width)
    lines = console.render_lines(Prose(source, number, code), pad=False)
    rows = rows_of(lines, styles.base)
    full = [index for index, row in enumerate(rows) if row.strip.text.strip()]
    return rows[full[0] : full[-1] + 1] if full else rows[:1]
