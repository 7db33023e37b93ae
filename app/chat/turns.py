"""The turns of a conversation as a front end shows them, and the updates of one that streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from macspec.store import ASSISTANT, GenerationMetadata, Message, model_name
from macspec.text import Span


@dataclass(frozen=True, slots=True)
class TurnStats:
    """The numbers under a reply; None where something was not measured."""

    tokens: int
    tokens_per_s: float | None
    """Of decode."""
    acceptance: float | None
    tokens_per_pass: float | None
    ttft_s: float | None
    joules_per_token: float | None = None
    """Gross, of decode."""
    energy_basis: str = ""
    """Which rails the joules are of, or why there are none."""
    parts: int = 1
    """In how many parts it was generated: one more than it was continued."""
    whole: bool = True
    """Whether the numbers are of all parts; else they are of the newest one."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the path that is shown. All text is untrusted."""

    id: int
    """The store's."""
    role: str
    """user, assistant or raw."""
    text: str
    reasoning: str = ""
    spans: Sequence[Span] = ()
    """Who wrote ``text``, in order; empty where that is not known."""
    reasoning_spans: Sequence[Span] = ()
    state: str = "complete"
    """open, complete, stopped or cut off."""
    reason: str | None = None
    """Why a reply ended: end, stop, length, context or interrupted."""
    model: str | None = None
    """The target in a word or two; None for the user's turns."""
    draft: str | None = None
    stats: TurnStats | None = None
    sibling: int = 1
    """Which of ``siblings`` this is, from 1."""
    siblings: int = 1
    dropped: bool = False
    """The model no longer sees it: the conversation has outgrown its context."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    """New text of the reply that streams."""

    text: str
    spans: Sequence[Span]
    """Who wrote ``text``; their characters add up to it."""
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Began:
    """A reply has begun, or is being continued."""

    prompt: Turn | None
    """The new message that it answers; None: an earlier one."""
    reply: Turn


@dataclass(frozen=True, slots=True)
class ChatNotice:
    """A notice: one line of neutral text."""

    line: str
    severity: str = "information"
    """information, warning or error."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """All turns of the path that the model no longer sees; they are the oldest."""

    turns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The reply is over; nothing follows."""

    reply: Turn


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The engine refused to reply, so that nothing was sent; nothing follows."""

    line: str
    """Why, and what to do. Neutral."""


Update = Began | TextPiece | ChatNotice | Dropped | Ended | Withdrawn


EARLIER = "earlier"
"""The key under which the numbers of a part hold those of the parts before it, oldest first."""

Numbers = Mapping[str, Any]


def with_earlier(before: Numbers | None, new: Numbers | None) -> Numbers | None:
    """The numbers of the newest part of a reply (None: nothing was measured or generated), with
    what this returned for the parts before it (None: unknown)."""
    if new is None:
        return before
    old = dict(before or {})
    return {**new, EARLIER: [*_list(old.pop(EARLIER, ())), old]}


def with_newest(old: Numbers | None, new: Numbers) -> Numbers:
    """Replace the numbers of the newest part, and keep those of the parts before it."""
    return {**new, EARLIER: old[EARLIER]} if old and EARLIER in old else new


def turn_stats(stats: Numbers | None, energy: Numbers | None) -> TurnStats | None:
    """The stored numbers of a reply, over all of its parts; imported ones may be anything."""
    if stats is None:
        return None
    parts, energies = _parts(stats), _parts(energy or {})
    known = [part for part in parts if _number(part, "tokens") is not None]
    count, whole = len(parts), len(known) == len(parts)
    if not whole:
        parts, energies = known[-1:] or [{}], energies[-1:]
    decode = [_table(each, "decode") for each in energies]
    joules = _joules_per_token(decode, len(parts))
    return TurnStats(
        tokens=int(_total(parts, "tokens") or 0),
        tokens_per_s=_speed(parts),
        acceptance=_share(parts, "accepted", "drafted"),
        tokens_per_pass=_share(parts, "tokens", "passes"),
        ttft_s=_number(parts[0], "ttft_s"),
        joules_per_token=joules,
        energy_basis=_basis(decode, joules),
        parts=count,
        whole=whole,
    )


def _parts(numbers: Numbers) -> list[Numbers]:
    return [*_list(numbers.get(EARLIER, ())), numbers]


def _speed(parts: Sequence[Numbers]) -> float | None:
    """Tokens of decode a second; None where a part has no valid time."""
    tokens = seconds = 0.0
    for part in parts:
        lasted = _number(_table(part, "seconds"), "decode")
        speed = _number(part, "decode_tokens_per_s")
        if lasted is None or (speed is None and lasted > 0):
            return None
        tokens += (speed or 0.0) * lasted
        seconds += lasted
    return tokens / seconds if seconds > 0 else None


def _joules_per_token(decode: Sequence[Numbers], parts: int) -> float | None:
    """Over all parts; None where one was not measured, or they count different rails."""
    alike = all(each.get("counted") == decode[0].get("counted") for each in decode)
    return _share(decode, "joules", "tokens") if alike and len(decode) == parts else None


def _basis(decode: Sequence[Numbers], joules: float | None) -> str:
    """Which rails the joules are of, or why there are none."""
    counted = decode[-1].get("counted")
    if joules is not None and isinstance(counted, list | tuple):
        *first, last = [str(rail) for rail in counted] or ["nothing"]
        return f"{', '.join(first)} and {last}" if first else last
    reasons = [str(each["reason"]) for each in decode if isinstance(each.get("reason"), str)]
    if reasons:
        return reasons[-1]
    measured = any(_number(each, "joules") is not None for each in decode)
    return "only part of it was measured" if measured else ""


def _share(parts: Sequence[Numbers], part: str, whole: str) -> float | None:
    above, below = _total(parts, part), _total(parts, whole)
    return above / below if above is not None and below else None


def _total(parts: Sequence[Numbers], key: str) -> float | None:
    values = [_number(part, key) for part in parts]
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _table(values: Numbers, key: str) -> Numbers:
    inner = values.get(key)
    return inner if isinstance(inner, dict) else {}


def _list(value: object) -> list[Numbers]:
    values = value if isinstance(value, list | tuple) else ()
    return [each for each in values if isinstance(each, dict)]


def _number(values: Numbers, key: str) -> float | None:
    value = values.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def turn_of(message: Message, siblings: Sequence[int], *, dropped: bool) -> Turn:
    """A stored message as a turn; ``siblings``: all versions, itself included."""
    known = message.metadata is not None
    metadata = message.metadata or GenerationMetadata()
    return Turn(
        id=message.id,
        role=message.role,
        text=message.text,
        reasoning=message.reasoning,
        spans=known_spans(metadata.spans, message.text) or (),
        reasoning_spans=known_spans(metadata.reasoning_spans, message.reasoning) or (),
        state=message.state,
        reason=message.reason,
        model=model_name(metadata.model) if known and message.role == ASSISTANT else None,
        draft=model_name(metadata.draft) if metadata.draft else None,
        stats=turn_stats(metadata.stats, metadata.energy),
        sibling=siblings.index(message.id) + 1,
        siblings=len(siblings),
        dropped=dropped,
    )


def known_spans(spans: Sequence[Span] | None, text: str) -> Sequence[Span] | None:
    """Who wrote a text; None where that is not known for all of it."""
    if spans is None:
        return None if text else ()
    return spans if sum(length for length, _ in spans) == len(text) else None
