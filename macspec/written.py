"""What a reply has written so far, reasoning apart, and who wrote which of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .events import Text

Span = tuple[int, str | None]
"""Characters, and the drafter whose guess they were; None: the target's own."""


class Written:
    """Adds up the texts of a reply, in constant time for each.

    Args:
        spans, reasoning_spans: of what the reply had before; None: that is not known.
    """

    def __init__(
        self, spans: Iterable[Span] | None = (), reasoning_spans: Iterable[Span] | None = ()
    ) -> None:
        self._spans = None if spans is None else list(spans)
        self._reasoning_spans = None if reasoning_spans is None else list(reasoning_spans)
        self.characters = 0
        """Taken so far, tags included."""

    @property
    def spans(self) -> Sequence[Span] | None:
        """Who wrote the answer, in order; None where that is not known."""
        return self._spans

    @property
    def reasoning_spans(self) -> Sequence[Span] | None:
        """Who wrote the reasoning."""
        return self._reasoning_spans

    def take(self, event: Text) -> tuple[str, str]:
        """Take the next text and return what it adds to the answer and to the reasoning."""
        self.characters += len(event.delta)
        known = sum(length for length, _ in event.spans) == len(event.delta)
        if event.part == "answer":
            self._spans = added(self._spans, event.spans) if known else None
            return event.delta, ""
        if event.part == "reasoning":
            spans = self._reasoning_spans
            self._reasoning_spans = added(spans, event.spans) if known else None
            return "", event.delta
        return "", ""


def added(spans: list[Span] | None, new: Iterable[Span]) -> list[Span] | None:
    """``spans`` with new ones at their end; neighbours of one drafter are one."""
    if spans is None:
        return None
    for length, drafter in new:
        if spans and spans[-1][1] == drafter:
            spans[-1] = spans[-1][0] + length, drafter
        else:
            spans.append((length, drafter))
    return spans
