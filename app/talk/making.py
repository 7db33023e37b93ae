"""Stored messages as turns to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from macspec.store import ASSISTANT, Making, Message
from macspec.store.markdown import model_name

from .turns import Span, Turn, TurnStats


def turn_of(
    message: Message, *, sibling: int = 1, siblings: int = 1, dropped: bool = False
) -> Turn:
    """A message as it is shown.

    Args:
        sibling, siblings: which of how many versions it is.
        dropped: the model no longer sees it.
    """
    making = message.making
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
        stats=stats_of(making),
        sibling=sibling,
        siblings=siblings,
        dropped=dropped,
    )


def known_spans(spans: Sequence[Span] | None, text: str) -> Sequence[Span] | None:
    """Who wrote a text, where that is known for all of it."""
    if spans is None:
        return None if text else ()
    return spans if sum(length for length, _ in spans) == len(text) else None


def stats_of(making: Making | None) -> TurnStats | None:
    """The numbers of a reply as they were stored, as far as they are numbers."""
    if making is None or making.stats is None:
        return None
    stats, decode = making.stats, _table(making.energy, "decode")
    return TurnStats(
        tokens=int(_number(stats, "tokens") or 0),
        tokens_per_s=_number(stats, "decode_tokens_per_s"),
        acceptance=_number(stats, "acceptance"),
        tokens_per_pass=_number(stats, "tokens_per_pass"),
        ttft_s=_number(stats, "ttft_s"),
        joules_per_token=_number(decode, "joules_per_token"),
        energy_basis=_basis(decode),
    )


def _basis(decode: Mapping[str, Any]) -> str:
    counted = decode.get("counted")
    if _number(decode, "joules_per_token") is not None and isinstance(counted, list | tuple):
        *first, last = [str(rail) for rail in counted] or ["nothing"]
        return f"{', '.join(first)} and {last}" if first else last
    reason = decode.get("reason")
    return reason if isinstance(reason, str) else ""


def _table(value: Mapping[str, Any] | None, key: str) -> Mapping[str, Any]:
    inner = None if value is None else value.get(key)
    return inner if isinstance(inner, dict) else {}


def _number(values: Mapping[str, Any], key: str) -> float | None:
    """What an imported file holds may be anything."""
    value = values.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
