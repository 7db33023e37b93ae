"""Stored messages as turns to show."""

from __future__ import annotations

from collections.abc import Sequence

from macspec.store import ASSISTANT, Message, model_name

from .parts import stats_of
from .turns import Span, Turn


def turn_of(
    message: Message, *, sibling: int = 1, siblings: int = 1, dropped: bool = False
) -> Turn:
    """A message as it is shown.

    Args:
        sibling, siblings: which of how many versions it is.
        dropped: the model no longer sees it.
    """
    making = message.metadata
    replied = message.role == ASSISTANT
    return Turn(
        id=message.id,
        role=message.role,
        text=message.text,
        reasoning=message.reasoning,
        spans=known_spans(None if making is None else making.spans, message.text) or (),
        reasoning_spans=known_spans(
            None if making is None else making.reasoning_spans, message.reasoning
        )
        or (),
        state=message.state,
        reason=message.reason,
        model=model_name(making.model) if replied and making is not None else None,
        draft=model_name(making.draft) if making is not None and making.draft else None,
        stats=None if making is None else stats_of(making.stats, making.energy),
        sibling=sibling,
        siblings=siblings,
        dropped=dropped,
    )


def known_spans(spans: Sequence[Span] | None, text: str) -> Sequence[Span] | None:
    """Who wrote a text, where that is known for all of it."""
    if spans is None:
        return None if text else ()
    return spans if sum(length for length, _ in spans) == len(text) else None
