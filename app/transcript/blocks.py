"""A text that grows, cut into blocks that no longer change once the next one begins.

Only the last block of a reply that streams has to be drawn again when text comes, and a block
is never long. Where the cuts are follows from the text alone, not from how it arrived.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Protocol

MOST = 1_600
"""Characters of a block; a longer one is cut at a line's end, a longer line between words."""

MOST_LINES = 40

FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})(.*)")
HEADING = re.compile(r"#{1,6}(?:[ \t]|$)")
ITEM = re.compile(r"( {0,3})(?:([-+*])|(\d{1,9})[.)])(?: {1,4}(?=\S)|[ \t]|$)")
RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
HEAD_OF_TABLE = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
INNER_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})(.*)")


@dataclass(frozen=True, slots=True)
class Block:
    """``text[start:stop]`` of the source, without the lines of a fence."""

    start: int
    stop: int
    kind: str = "text"
    """text (Markdown), item (of a list), code or plain."""
    gap: bool = False
    """A blank line stands before it."""
    first: bool = True
    """Not the continuation of a block that was cut."""
    info: str = ""
    """What the fence says about its code."""
    number: int | None = None
    """Of an item of an ordered list."""
    indent: int = 0
    """Columns that the lines of a cut item, or of a fence, are moved to the left."""
    head: tuple[int, int] | None = None
    """Where the head of the table is that this block continues."""


class Blocks(Protocol):
    """The blocks of a text that grows."""

    def take(self, text: str) -> int:
        """Adds text. Returns how many blocks, from the first one, did not change."""
        ...

    @property
    def text(self) -> str: ...

    @property
    def blocks(self) -> list[Block]: ...


@dataclass(slots=True)
class _Open:
    """The block that is being read."""

    start: int
    kind: str
    gap: bool
    first: bool = True
    fence: str = ""
    """What closes the code."""
    info: str = ""
    number: int | None = None
    indent: int = 0
    blank: int | None = None
    """Where the blank lines at its end begin."""
    inner: str = ""
    """What closes a fence inside an item or a quote."""
    lines: int = 0
    table: tuple[int, int] | None = None


class _Cutter:
    """Cuts complete lines; the last line, while it grows, is read by a copy."""

    def __init__(self) -> None:
        self.closed: list[Block] = []
        self.open: _Open | None = None
        self.gap = False
        self.line = (0, 0)

    def read(self, text: str, start: int, stop: int) -> None:
        """A line, ``text[start:stop]``, with its newline if it has one."""
        line = text[start:stop].rstrip("\n")
        if self.open is not None and self.open.kind == "code":
            self._code(line, start, stop)
        else:
            self._prose(text, line, start, stop)
        self.line = (start, stop)

    def end(self, at: int) -> None:
        """Closes what is open, at the end of the text."""
        if self.open is not None:
            self._close(at)

    # -- inside a fence -------------------------------------------------------------------------

    def _code(self, line: str, start: int, stop: int) -> None:
        now = self.open
        assert now is not None
        end = FENCE.match(line)
        if end and end[2].startswith(now.fence) and not end[3].strip():
            self._close(start)
            return
        self._count(line, start, stop)

    # -- outside --------------------------------------------------------------------------------

    def _prose(self, text: str, line: str, start: int, stop: int) -> None:
        now = self.open
        if now is not None and now.inner:
            end = INNER_FENCE.match(line)
            if end and end[1].startswith(now.inner) and not end[2].strip():
                now.inner = ""
            self._count(line, start, stop)
            return
        if not line.strip():
            if now is None:
                self.gap = True
            elif now.blank is None:
                now.blank = start
            return
        depth = len(line) - len(line.lstrip(" "))
        inside = now is not None and now.kind == "item" and depth >= max(now.indent, 1)
        fence = None if inside else FENCE.match(line)
        if fence and not ("`" in fence[2] and "`" in fence[3]):
            self._begin(start, "code", gap=True)
            assert self.open is not None
            self.open.fence, self.open.info = fence[2], fence[3].strip()
            self.open.indent, self.open.start = len(fence[1]), stop
            return
        if not inside and HEADING.match(line):
            self._begin(start, "text", gap=True)
            self._count(line, start, stop)
            self._close(stop)
            return
        item = None if inside or RULE.match(line) else ITEM.match(line)
        if item and self._may_begin(item):
            self._item(line, item, start)
        elif now is None or (now.blank is not None and not inside):
            self._begin(start, "text", gap=now is None or now.blank is not None)
        now = self.open
        assert now is not None
        now.blank = None
        if now.lines == 1 and "|" in line and HEAD_OF_TABLE.match(line):
            now.table = (now.start, stop)
        fence = INNER_FENCE.match(line)
        if fence and not ("`" in fence[1] and "`" in fence[2]):
            now.inner = fence[1]
        self._count(line, start, stop)

    def _may_begin(self, item: re.Match[str]) -> bool:
        """Whether an item begins here; in a paragraph only some may, as CommonMark has it."""
        now = self.open
        if now is None or now.kind == "item" or now.blank is not None:
            return True
        return item[2] is not None or item[3] == "1"

    def _item(self, line: str, item: re.Match[str], start: int) -> None:
        now = self.open
        last = self.closed[-1] if self.closed else None
        before = now if now is not None else last
        follows = before is not None and before.kind == "item"
        number = before.number if before is not None and follows else None
        self._begin(start, "item", gap=now is None and not follows)
        assert self.open is not None
        self.open.indent = len(item[0]) if item[0].endswith(" ") else len(item[0]) + 1
        if item[3] is not None:
            self.open.number = int(item[3]) if number is None else number + 1

    # -- bookkeeping ----------------------------------------------------------------------------

    def _begin(self, start: int, kind: str, *, gap: bool) -> None:
        if self.open is not None:
            self._close(start)
        self.open = _Open(start, kind, gap=(gap or self.gap) and bool(self.closed))
        self.gap = False

    def _close(self, at: int) -> None:
        now = self.open
        assert now is not None
        if now.blank is not None:
            at, self.gap = now.blank, True
        self.closed.append(
            Block(
                now.start,
                at,
                now.kind,
                now.gap,
                now.first,
                now.info,
                now.number,
                now.indent if now.kind != "item" else 0,
                now.table if not now.first else None,
            )
        )
        self.open = None

    def _continue(self, at: int, gap: bool = False) -> None:
        """Closes what is open and goes on with a block of the same kind."""
        now = self.open
        assert now is not None
        self._close(at)
        kind = "text" if now.kind == "item" else now.kind
        self.open = _Open(at, kind, gap, first=False)
        self.open.fence, self.open.info, self.open.indent = now.fence, now.info, now.indent
        self.open.inner, self.open.table = now.inner, now.table

    def _count(self, line: str, start: int, stop: int) -> None:
        """The line belongs to the open block; one that would be long is cut, and so is the line."""
        now = self.open
        assert now is not None
        if now.lines and (now.lines >= MOST_LINES or stop - now.start > MOST):
            self._continue(start)
        while len(line) > MOST:
            assert self.open is not None
            if self.open.start < start:
                self._continue(start)
            at = line.rfind(" ", MOST // 2, MOST) + 1 or MOST
            start += at
            line = line[at:]
            self._continue(start)
        assert self.open is not None
        self.open.lines += 1


class Markdown:
    """The blocks of Markdown."""

    def __init__(self) -> None:
        self.text = ""
        self._read = 0
        self._cutter = _Cutter()
        self._tail: list[Block] = []

    @property
    def blocks(self) -> list[Block]:
        return self._cutter.closed + self._tail

    def take(self, text: str) -> int:
        cutter = self._cutter
        same = len(cutter.closed)
        self.text += text
        while (stop := self.text.find("\n", self._read) + 1) > 0:
            cutter.read(self.text, self._read, stop)
            self._read = stop
        trial = copy.copy(cutter)
        before = cutter.closed[-1:]
        trial.closed, trial.open = list(before), copy.copy(cutter.open)
        if self._read < len(self.text):
            trial.read(self.text, self._read, len(self.text))
        trial.end(len(self.text))
        self._tail = trial.closed[len(before) :]
        return same


class Plain:
    """The blocks of a text that is shown as it stands: lines, cut where a block would be long."""

    def __init__(self) -> None:
        self.text = ""
        self._closed: list[Block] = []
        self._start = 0

    @property
    def blocks(self) -> list[Block]:
        if self._start == len(self.text):
            return list(self._closed)
        last = Block(self._start, len(self.text), "plain", first=not self._closed)
        return [*self._closed, last]

    def take(self, text: str) -> int:
        same = len(self._closed)
        self.text += text
        while len(self.text) - self._start > MOST:
            whole = self.text.rfind("\n", self._start, self._start + MOST) + 1
            words = self.text.rfind(" ", self._start + MOST // 2, self._start + MOST) + 1
            stop = whole or words or self._start + MOST
            self._closed.append(Block(self._start, stop, "plain", first=not self._closed))
            self._start = stop
        return same
