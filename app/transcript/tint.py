"""Who wrote which characters: spans over the text that is shown."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator

from rich.style import Style
from rich.text import Text

from macspec.plaintext import one_line

from ..chat.turns import Span
from .markdown import clean
from .styles import Styles

NAMES = {"draft": "draft model", "ngram": "n-gram", "suffix": "past replies"}
"""Drafters in words; another one is shown by its own name."""

Author = str | None
UNKNOWN = "?"


def author_name(author: Author) -> str:
    """A drafter in words; None is the target."""
    return "the target's own" if author is None else NAMES.get(author, one_line(author))


def author_style(author: Author, styles: Styles) -> Style:
    if author is None:
        return Style.null()
    if author == UNKNOWN:
        return styles["tint-unknown"]
    return styles.parts.get(f"tint-{author}", styles["tint-other"])


class Authors:
    """Who wrote a text that grows; its characters are those of the cleaned text."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._who: list[Author] = []

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Authors):
            return NotImplemented
        return self._ends == other._ends and self._who == other._who

    def __len__(self) -> int:
        """Characters so far."""
        return self._ends[-1] if self._ends else 0

    def take(self, text: str, spans: Iterable[Span]) -> str:
        """Adds a text and its spans. What spans leave out has no known author.

        Returns:
            The cleaned text.
        """
        at, shown = 0, []
        for length, who in (*spans, (len(text), UNKNOWN)):
            part = clean(text[at : at + max(length, 0)])
            at += max(length, 0)
            if part:
                shown.append(part)
                self._add(len(part), who)
        return "".join(shown)

    def _add(self, length: int, who: Author) -> None:
        if self._who and self._who[-1] == who:
            self._ends[-1] += length
        else:
            self._ends.append(len(self) + length)
            self._who.append(who)

    def within(self, start: int, stop: int) -> Iterator[tuple[int, int, Author]]:
        """The spans of ``[start, stop)``, as places inside of it."""
        index = bisect_right(self._ends, start)
        at = start
        while at < stop and index < len(self._ends):
            end = min(self._ends[index], stop)
            yield at - start, end - start, self._who[index]
            at, index = end, index + 1

    def counts(self) -> Counter[Author]:
        """Characters of each author."""
        counted: Counter[Author] = Counter()
        at = 0
        for end, who in zip(self._ends, self._who, strict=True):
            counted[who] += end - at
            at = end
        return counted


def tinted(text: Text, authors: Authors, start: int, styles: Styles) -> None:
    """Styles ``text``, which begins at ``start`` of the source, by its authors."""
    for first, last, who in authors.within(start, start + len(text)):
        text.stylize(author_style(who, styles), first, last)


def legend(counted: Counter[Author], styles: Styles) -> list[Text]:
    """What the tints mean and how much of the text is whose; one part for each author."""
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
        rest = "the rest: not known" if known else "who wrote it is not known"
        parts.append(Text(rest, styles["tint-unknown"]))
    return parts
