"""A reply's events as OpenAI's objects, whole or in chunks."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..choices import LOOKUPS
from ..events import Finished, Prefilled, Round, Text, TokenLogprob
from ..parts import ANSWER, REASONING
from ..worker import ToolCall
from ..worker.messages import Answer
from .protocol import Request

REASONS = {"length": "length", "context": "length"}
"""Why a reply ended, where OpenAI's word is not stop."""


@dataclass(slots=True)
class Part:
    """What one or more rounds add to a reply."""

    content: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning or self.calls or self.logprobs)


class Writer:
    """Writes one reply.

    Args:
        asked: when the request came, by ``time.monotonic``.
    """

    def __init__(self, request: Request, model: str, asked: float) -> None:
        self._request, self._asked = request, asked
        kind = "chatcmpl" if request.chat else "cmpl"
        self._head = {
            "id": f"{kind}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }
        self._whole, self._round = Part(), Part()
        self._calls = 0
        self._copied = self._refused = 0
        self._first: float | None = None
        self._offset = 0

    def see(self, event: Answer) -> None:
        """Take the next event."""
        match event:
            case Text(delta=delta, part=part):
                self._round.content += delta if part == ANSWER else ""
                self._round.reasoning += delta if part == REASONING else ""
            case ToolCall():
                self._round.calls.append(self._call(event))
            case Prefilled():
                self._first = time.monotonic()
            case Round():
                self._round.logprobs += event.logprobs
                if event.drafter in LOOKUPS:
                    self._copied += event.accepted
                    self._refused += event.drafted - event.accepted

    def chunks(self, event: Answer) -> Iterator[dict[str, Any]]:
        """What a stream sends after an event that was seen."""
        if not isinstance(event, Round | Finished):
            return
        if self._round:
            yield self._chunk(self._taken())
        if isinstance(event, Finished):
            yield self._chunk(Part(), event)
            if self._request.usage:
                yield {**self._named(True), "choices": [], "usage": self._usage(event)}

    def opening(self) -> dict[str, Any] | None:
        """What a stream sends first."""
        if not self._request.chat:
            return None
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return {**self._named(True), "choices": [choice]}

    def whole(self, finished: Finished) -> dict[str, Any]:
        """The answer to a request that wants no stream."""
        part = self._taken()
        choice: dict[str, Any] = {
            "index": 0,
            "finish_reason": self._reason(finished),
            "logprobs": self._logprobs(part),
        }
        if self._request.chat:
            choice["message"] = {"role": "assistant", **_fields(part), "refusal": None}
        else:
            choice["text"] = part.reasoning + part.content
        return {
            **self._named(False),
            "choices": [choice],
            "usage": self._usage(finished),
            "macspec": self._statistics(finished),
        }

    def _taken(self) -> Part:
        part, self._round = self._round, Part()
        return part

    def _chunk(self, part: Part, finished: Finished | None = None) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": 0,
            "finish_reason": None if finished is None else self._reason(finished),
            "logprobs": self._logprobs(part),
        }
        if self._request.chat:
            fields = _fields(part)
            choice["delta"] = {name: value for name, value in fields.items() if value}
        else:
            choice["text"] = part.reasoning + part.content
        chunk = {**self._named(True), "choices": [choice]}
        if finished is not None:
            chunk["macspec"] = self._statistics(finished)
        return chunk

    def _named(self, chunk: bool) -> dict[str, Any]:
        if not self._request.chat:
            return {**self._head, "object": "text_completion"}
        return {**self._head, "object": "chat.completion" + (".chunk" if chunk else "")}

    def _call(self, call: ToolCall) -> dict[str, Any]:
        self._calls += 1
        made = {
            "id": f"call_{secrets.token_hex(12)}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        return {"index": self._calls - 1, **made} if self._request.stream else made

    def _reason(self, finished: Finished) -> str:
        ended = finished.reason == "end"
        return "tool_calls" if ended and self._calls else REASONS.get(finished.reason, "stop")

    def _logprobs(self, part: Part) -> dict[str, Any] | None:
        if self._request.reply.logprobs is None or not part.logprobs:
            return None
        if self._request.chat:
            return {
                "content": [
                    {
                        **_token(it.token, it.logprob),
                        "top_logprobs": [_token(*top) for top in it.top],
                    }
                    for it in part.logprobs
                ],
                "refusal": None,
            }
        offsets = []
        for it in part.logprobs:
            offsets.append(self._offset)
            self._offset += len(it.token)
        return {
            "tokens": [it.token for it in part.logprobs],
            "token_logprobs": [it.logprob for it in part.logprobs],
            "top_logprobs": [dict(it.top) for it in part.logprobs],
            "text_offset": offsets,
        }

    def _usage(self, finished: Finished) -> dict[str, Any]:
        stats, predicted = finished.stats, bool(self._request.reply.prediction)
        return {
            "prompt_tokens": stats.prompt_tokens,
            "completion_tokens": stats.tokens,
            "total_tokens": stats.prompt_tokens + stats.tokens,
            "prompt_tokens_details": {"cached_tokens": stats.cached_tokens},
            "completion_tokens_details": {
                "accepted_prediction_tokens": self._copied if predicted else 0,
                "rejected_prediction_tokens": self._refused if predicted else 0,
            },
        }

    def _statistics(self, finished: Finished) -> dict[str, Any]:
        """Our own, under one key; times of the reply are of its own turns."""
        now = time.monotonic()
        first = None if self._first is None else self._first - self._asked
        return {
            **finished.stats.as_dict(),
            "seed": finished.seed,
            "rule": finished.rule,
            "method": finished.method,
            "depth": finished.depth,
            "finished": finished.reason,
            "request_s": now - self._asked,
            "request_ttft_s": first,
        }


def _fields(part: Part) -> dict[str, Any]:
    """A message's fields, those that are usually missing only where they are not empty."""
    fields: dict[str, Any] = {"content": part.content or (None if part.calls else "")}
    if part.reasoning:
        fields["reasoning_content"] = part.reasoning
    if part.calls:
        fields["tool_calls"] = part.calls
    return fields


def _token(token: str, logprob: float) -> dict[str, Any]:
    raw = None if "\ufffd" in token else [*token.encode()]
    return {"token": token, "logprob": logprob, "bytes": raw}
