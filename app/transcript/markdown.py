"""Markdown source: cleaning it, cutting it into blocks, and finding its code. Needs no Textual.

A growing text is cut into blocks that no longer change once the next one begins. So only the
last block of a streaming reply is parsed and drawn again, and no block is long. The cuts depend
on the text alone, not on how it arrived.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from macspec.plaintext import SURROGATES, neutral

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MOST = 1_600
"""Characters of a block. A longer one is cut at the end of a line, a longer line between words."""

MOST_LINES = 40

LEFT_OUT = ["html_block", "html_inline", "reference", "lheading", "image"]
"""CommonMark rules that hide text, or that turn a paragraph into a heading in mid-stream."""

CODE = ("fence", "code_block")

FIRST = re.compile(r"(?:[ \t\r]*\n)*( *)")
"""Finds the indent of the first line that is not blank."""

MARKER = re.compile(r" *(?:[-+*]|\d+[.)]) {0,4}")


@cache
def parser(*, inline: bool = True) -> MarkdownIt:
    """CommonMark with tables, without ``LEFT_OUT``; ``inline``: the insides of paragraphs too."""
    from markdown_it import MarkdownIt

    made = MarkdownIt().enable("strikethrough").enable("table").disable(LEFT_OUT)
    return made if inline else made.disable("inline")


def clean(text: str) -> str:
    """Untrusted text made safe to draw; cleaning its parts separately gives the same result."""
    return neutral(text).translate(SURROGATES)


def language_of(info: str) -> str:
    """The language that a fence names, in lower case; empty if it names none."""
    words = info.replace("{", " ").replace("}", " ").replace(",", " ").split()
    return words[0].lstrip(".").lower()[:24] if words else ""


def moved(text: str, columns: int) -> str:
    """Lines without that many leading blanks, as far as they have them."""
    if not columns:
        return text
    lines = text.split("\n")
    return "\n".join(line[min(columns, _depth(line)) :] for line in lines)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


# -- blocks -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Block:
    """``text[start:stop]`` of the source, without the fence around code."""

    start: int
    stop: int
    kind: str = "text"
    """text (Markdown), item (of a list), code or plain."""
    gap: bool = False
    """A blank line is drawn before it."""
    first: bool = True
    """False: it continues a block that was cut."""
    info: str = ""
    """The info string of the fence."""
    number: int | None = None
    """Number of an item in an ordered list."""
    indent: int = 0
    """Columns by which its lines are moved left."""
    head: tuple[int, int] | None = None
    """Where the head of the table is that it continues."""

    codes: int = 0
    """Blocks of code that begin in it."""

    @property
    def size(self) -> int:
        return self.stop - self.start

    def source(self, text: str) -> str:
        """Its Markdown or code, from the whole text."""
        head = text[slice(*self.head)] if self.head else ""
        return moved(head + text[self.start : self.stop], self.indent)


class _Node(NamedTuple):
    token: Token
    first: int
    """Its first line, and the one after its last."""
    stop: int
    leaf: Token
    """The last paragraph, fence or the like inside it."""
    codes: int


@dataclass(frozen=True, slots=True)
class _Open:
    """Where the next block begins, and what it depends on."""

    start: int
    after: str = ""
    """Token type of the block before it."""
    first: bool = True
    indent: int = 0
    opener: str = ""
    """The line that opened the fence it is in."""
    head: tuple[int, int] | None = None


class Markdown:
    """Blocks of Markdown, found by the parser's line maps."""

    def __init__(self) -> None:
        self.text = ""
        self.closed: list[Block] = []
        """Blocks that will not change."""
        self._open = _Open(0)
        self._tail: list[Block] = []

    @property
    def blocks(self) -> list[Block]:
        return self.closed + self._tail

    def take(self, text: str) -> None:
        self.text += text
        self._open = self._read(self._open, self.closed, whole=False)
        tail = self.closed[-1:]
        known = len(tail)
        self._read(self._open, tail, whole=True)
        self._tail = tail[known:]

    def _read(self, at: _Open, blocks: list[Block], *, whole: bool) -> _Open:
        """Closes blocks that are followed by another one or are long, and at the end of the whole
        text its last block; returns what is open."""
        while at.start < len(self.text) or (whole and at.opener and at.first):
            lines, full = self._window(at.start, whole)
            read = self._code if at.opener else self._prose
            following = read(at, lines, full or whole, blocks)
            if following is None:
                break
            at = following
        return at

    def _window(self, start: int, whole: bool) -> tuple[Sequence[int], bool]:
        """Bounds of as many lines as a block may have, and whether there are that many."""
        text, bounds = self.text, [start]
        while len(bounds) <= MOST_LINES:
            at = bounds[-1]
            stop = text.find("\n", at, at + MOST) + 1
            long = not stop and len(text) - at > MOST
            if long:
                stop = text.rfind(" ", at + MOST // 2, at + MOST) + 1 or at + MOST
            elif not stop and (not whole or at == len(text)):
                return bounds, len(bounds) > 1 and len(text) - start > MOST
            stop = stop or len(text)
            if len(bounds) > 1 and stop - start > MOST:
                break
            bounds.append(stop)
            if long:
                break
        return bounds, True

    def _code(
        self, at: _Open, lines: Sequence[int], ends: bool, blocks: list[Block]
    ) -> _Open | None:
        """Inside a fence: up to its end or the end of the window."""
        fence = _nodes(at.opener + moved(self.text[at.start : lines[-1]], at.indent))[0].token
        closed, count = _is_closed(fence), _span(fence)[1] - 1
        if not closed and not ends:
            return None
        stop = lines[count - 1] if closed else lines[-1]
        if at.first or stop > at.start:
            info, indent = fence.info.strip(), at.indent + _depth(at.opener)
            gap = at.first and bool(blocks)
            codes = int(at.first)
            blocks.append(
                Block(at.start, stop, "code", gap, at.first, info, None, indent, None, codes)
            )
        if closed:
            return _Open(lines[count], "fence", indent=at.indent)
        return replace(at, start=stop, first=False)

    def _prose(
        self, at: _Open, lines: Sequence[int], ends: bool, blocks: list[Block]
    ) -> _Open | None:
        """Outside fences: all blocks but the last, or the first part of a long one."""
        text = self.text[at.start : lines[-1]]
        first = FIRST.match(text)
        if first is None or len(first[1]) < at.indent:
            at = replace(at, indent=0)
        source = moved(text, at.indent)
        nodes = self._nodes(at, source)
        for node, following in zip_longest(nodes, nodes[1:]):
            if node.token.type == "fence":
                opener = source.split("\n")[node.first] + "\n"
                return _Open(lines[node.first + 1], indent=at.indent, opener=opener)
            if following is None and (len(nodes) > 1 or not ends):
                return at if len(nodes) > 1 else None
            blocks.append(self._block(at, node, lines, blocks))
            if following is None and node.stop == len(lines) - 1:
                return self._cut(at, node, lines, source)
            begin = lines[following.first if following else -1]
            at = _Open(begin, node.token.type, indent=at.indent)
        if nodes:
            return at
        return replace(at, start=lines[-1], head=None) if ends else None

    def _nodes(self, at: _Open, source: str) -> list[_Node]:
        """The blocks in some lines; the first may continue a table."""
        if at.head is None:
            return _nodes(source)
        nodes = _nodes(moved(self.text[slice(*at.head)], at.indent) + source)
        return [
            node._replace(first=max(node.first - 2, 0), stop=node.stop - 2)
            for node in nodes
            if node.stop > 2
        ]

    def _block(
        self, at: _Open, node: _Node, lines: Sequence[int], blocks: Sequence[Block]
    ) -> Block:
        start, stop = lines[node.first], node.stop
        while stop > node.first + 1 and not self.text[lines[stop - 1] : lines[stop]].strip():
            stop -= 1
        before = blocks[-1] if blocks else None
        item = node.token.type == "list_item_open"
        number = int(node.token.info) if item and node.token.info else None
        if number is not None and before is not None and before.number is not None:
            number = before.number + 1
        tight = not at.first or (item and at.after in ("list_item_open", "paragraph_open"))
        blank = before is not None and "\n" in self.text[before.stop : start]
        return Block(
            start,
            lines[stop],
            "item" if item else "text",
            gap=blank or (before is not None and not tight),
            first=at.first,
            number=number,
            indent=at.indent,
            head=at.head,
            codes=node.codes,
        )

    def _cut(self, at: _Open, node: _Node, lines: Sequence[int], source: str) -> _Open:
        """What is open after the first part of a long block."""
        at = replace(at, start=lines[-1], first=False)
        rows, leaf = source.split("\n"), node.leaf
        if node.token.type == "table_open" and at.head is None:
            return replace(at, head=(lines[node.first], lines[node.first + 2]))
        marker = MARKER.match(rows[node.first])
        if node.token.type != "list_item_open" or marker is None:
            return at
        if leaf.type != "fence" or _span(leaf)[1] < node.stop or _is_closed(leaf):
            return replace(at, indent=at.indent + len(marker[0]))
        before = rows[_span(leaf)[0]].partition(leaf.markup)[0]
        return replace(at, indent=at.indent + len(before), opener=f"{leaf.markup}{leaf.info}\n")


def _nodes(source: str) -> list[_Node]:
    """The blocks of a source; each item of a list is one."""
    found: list[_Node] = []
    for token in parser(inline=False).parse(source.replace("\r", " ")):
        if token.map is None:
            continue
        item = token.level == 1 and token.type == "list_item_open"
        if item or (token.level == 0 and not token.type.endswith("list_open")):
            found.append(_Node(token, *_span(token), token, token.type in CODE))
        elif found and token.level:
            codes = found[-1].codes + (token.type in CODE)
            found[-1] = found[-1]._replace(leaf=token, codes=codes)
    return found


def _span(token: Token) -> tuple[int, int]:
    assert token.map is not None
    return token.map[0], token.map[1]


def _is_closed(fence: Token) -> bool:
    rest = fence.content
    lines = rest.count("\n") + (rest[-1:] not in ("", "\n"))
    start, stop = _span(fence)
    return stop - start - 1 > lines


def plain_blocks(text: str) -> list[Block]:
    """The blocks of a text that is shown as it is: cut only where they would be long."""
    blocks: list[Block] = []
    start = 0
    while start < len(text):
        stop = len(text)
        if stop - start > MOST:
            line = text.rfind("\n", start, start + MOST) + 1
            word = text.rfind(" ", start + MOST // 2, start + MOST) + 1
            stop = line or word or start + MOST
        blocks.append(Block(start, stop, "plain", first=not blocks))
        start = stop
    return blocks


# -- code ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CodeBlock:
    language: str
    """As named by its fence; empty if it is not."""
    text: str
    """Ends with a newline unless it is empty."""


def code_in(text: str, block: Block) -> list[CodeBlock]:
    """The code that begins in a block, also inside items and quotes or without a fence."""
    source = block.source(text)
    if block.kind == "code":
        return [CodeBlock(language_of(block.info), source)] if block.first else []
    return [
        CodeBlock(language_of(token.info), token.content)
        for token in parser().parse(source)
        if token.type in CODE
    ]


def code_blocks(text: str) -> list[CodeBlock]:
    """The blocks of code in a turn's text, in order, cleaned as in the transcript."""
    markdown = Markdown()
    markdown.take(clean(text))
    found: list[CodeBlock] = []
    for block in markdown.blocks:
        if block.kind == "code" and not block.first:
            code = found[-1].text + block.source(markdown.text)
            found[-1] = CodeBlock(found[-1].language, code)
        elif block.codes:
            found += code_in(markdown.text, block)
    return found
