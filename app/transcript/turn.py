"""A turn as rows: its parts are drawn when they come near the screen, and again when needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from macspec.plaintext import one_line

from ..chat.turns import TextPiece, Turn
from . import header
from .markdown import Block
from .rows import Look, Row
from .source import Source, draw_block, guess


@dataclass(slots=True, eq=False)
class Part:
    """Some rows of an entry; their number is an estimate until they are drawn."""

    draw: Callable[[], list[Row]]
    height: int = 1
    rows: list[Row] | None = None
    source: Source | None = None
    block: Block | None = None
    """The block of the source that it shows."""
    kind: str = "text"
    """text, head, fold (the line that folds reasoning), blank or foot."""

    def drawn(self) -> list[Row]:
        if self.rows is None:
            self.rows = self.draw()
            self.height = len(self.rows)
        return self.rows


class Entry(ABC):
    """Something with rows: a turn or a note."""

    gutter = ("", "user")
    """The mark to its left, and its style."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        """Empty until the entry comes near the screen."""
        self._before: tuple[Look, list[Part]] | None = None
        """The parts as they were in the look before, to which many changes go back."""

    @abstractmethod
    def guess(self, width: int) -> int:
        """An estimate of its rows."""

    @abstractmethod
    def arrange(self, look: Look) -> None:
        """Makes the parts."""

    def relook(self, old: Look, new: Look) -> None:
        """The look has changed: the parts have to be made again, or are known from before."""
        known, self._before = self._before, (old, self.parts) if self.parts else None
        self.parts = known[1] if known is not None and known[0] == new else []


class Note(Entry):
    """A notice between turns."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = one_line(text)

    def guess(self, width: int) -> int:
        return 2

    def arrange(self, look: Look) -> None:
        self.parts = [Part(lambda: header.note(self.text, look), 2)]


class TurnRows(Entry):
    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.turn = turn
        self.choose(False)
        self.border = False
        """Whether the model's context begins with it."""
        self.unfolded: bool | None = None
        """Whether its reasoning is shown in full; None: as the look says."""
        self._look: Look | None = None

    @cached_property
    def answer(self) -> Source:
        return Source(self.turn.text, self.turn.spans, markdown=self.turn.role != "user")

    @cached_property
    def thought(self) -> Source:
        turn = self.turn
        return Source(turn.reasoning, turn.reasoning_spans, markdown=turn.role != "user")

    @property
    def tinted(self) -> bool:
        return self._look is not None and self._look.tint and self.turn.role != "user"

    def choose(self, chosen: bool) -> None:
        bar = "▎" if self.turn.role == "user" else ""
        self.gutter = ("┃", "chosen") if chosen else (bar, "user")

    def open(self, look: Look) -> bool:
        """Whether reasoning is shown in full: until there is an answer, then as set."""
        if not self.answer.text.strip():
            return self.unfolded is not False
        return look.reasoning if self.unfolded is None else self.unfolded

    def guess(self, width: int) -> int:
        return self.turn.text.count("\n") + len(self.turn.text) // max(width, 1) + 3

    def arrange(self, look: Look) -> None:
        self._look = look
        self._compose(look)

    def relook(self, old: Look, new: Look) -> None:
        super().relook(old, new)
        self._look = new

    def take(self, pieces: Sequence[TextPiece]) -> None:
        self.thought.take([(piece.text, piece.spans) for piece in pieces if piece.reasoning])
        self.answer.take([(piece.text, piece.spans) for piece in pieces if not piece.reasoning])

    def update(self, turn: Turn, *, text: bool = True) -> None:
        """The turn has changed; with or without its text, which may differ from ours while the
        reply streams."""
        before, self.turn = self.turn, turn
        if text and "answer" in vars(self):
            fresh = TurnRows(turn)
            texts = (fresh.answer.content, fresh.thought.content)
            if texts != (self.answer.content, self.thought.content):
                self.answer, self.thought = fresh.answer, fresh.thought
        if before.dropped != turn.dropped:
            self.parts = []
        self.compose()

    def compose(self) -> None:
        """Brings the parts up to date."""
        self._before = None
        if self._look is not None and self.parts:
            self._compose(self._look)

    def _compose(self, look: Look) -> None:
        turn, tinted = self.turn, self.tinted
        if turn.dropped:
            look = replace(look, styles=look.styles.faded)
        parts = [_around("head", partial(self._head, look))]
        if self.thought.text:
            unfolded = self.open(look)
            parts.append(_around("fold", partial(header.fold, self.thought, unfolded, look)))
            if unfolded:
                dim = replace(look, styles=look.styles.dimmed)
                parts += self._texts(self.thought, dim, tinted)
                parts.append(_around("blank", partial(header.blank, look.styles)))
        parts += self._texts(self.answer, look, tinted)
        self.parts = [*parts, _around("foot", partial(header.foot, turn, look))]

    def _texts(self, source: Source, look: Look, plain: bool) -> Iterator[Part]:
        """The parts of a text; those of unchanged blocks stay."""
        known = {part.block: part for part in self.parts if part.source is source}
        for block in source.blocks(plain):
            if block not in known:
                height = guess(source.text, block, look.width)
                draw = partial(draw_block, source, block, look.styles, look.width, tint=plain)
                known[block] = Part(draw, height, None, source, block)
            yield known[block]

    def _head(self, look: Look) -> list[Row]:
        written = None
        if self.tinted:
            written = self.answer.authors.counts()
            written += self.thought.authors.counts() if self.open(look) else Counter()
        above = header.border(look) if self.border else []
        return [*above, *header.head(self.turn, look, written)]


def _around(kind: str, draw: Callable[[], list[Row]]) -> Part:
    """A part beside the text; it is short, so that it is drawn at once."""
    part = Part(draw, kind=kind)
    part.drawn()
    return part
