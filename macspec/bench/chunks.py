"""What servers say in OpenAI's protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import brief

REASONS = {"stop": "end", "length": "length"}
"""The protocol's words for how a reply ended, in ours."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text, and when it came."""

    text: str
    at: float
    """Seconds of the clock."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The reply is over; None for what the server does not tell."""

    reason: str
    """end, length, or the server's own word."""
    tokens: int | None
    """Tokens of the reply, as the server counts them."""
    prompt_tokens: int | None
    cached_tokens: int | None
    drafted: int | None
    accepted: int | None


def text_of(choice: Mapping[str, Any]) -> str:
    """The text of a chunk, reasoning included."""
    delta = choice.get("delta")
    fields = delta if isinstance(delta, dict) else choice
    names = ("reasoning_content", "reasoning", "content", "text")
    return "".join(fields[name] for name in names if isinstance(fields.get(name), str))


def ended(reason: str, told: Mapping[str, Mapping[str, Any]]) -> Ended:
    """How a reply ended, from the objects of its chunks by their names."""
    usage, timings, stats = (told.get(name, {}) for name in ("usage", "timings", "stats"))
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    return Ended(
        reason=REASONS.get(reason, reason),
        tokens=_count(usage.get("completion_tokens"), timings.get("predicted_n")),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count(details.get("cached_tokens"), timings.get("cache_n")),
        drafted=_count(timings.get("draft_n"), stats.get("total_draft_tokens_count")),
        accepted=_count(timings.get("draft_n_accepted"), stats.get("accepted_draft_tokens_count")),
    )


def _count(*values: Any) -> int | None:
    """The first that is a count."""
    counts = (it for it in values if isinstance(it, int) and not isinstance(it, bool) and it >= 0)
    return next(counts, None)


def refusal(said: bytes) -> str:
    """What an answer says about why it is none."""
    try:
        answer = json.loads(said)
    except (ValueError, RecursionError):
        return brief(ValueError(said.decode(errors="replace"))) if said.strip() else ""
    return error(answer) if isinstance(answer, dict) else ""


def error(answer: Mapping[str, Any]) -> str:
    inner = answer.get("error", answer)
    if isinstance(inner, dict):
        inner = inner.get("message", inner)
    return brief(ValueError(inner if isinstance(inner, str) else json.dumps(inner)))
